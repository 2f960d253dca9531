"""Errors of ONNX models, and the reason why a use of an operator has no native code."""

from __future__ import annotations

from flour.core.errors import FlourError, ImportRefused


class DamagedModel(ImportRefused):
    """The bytes are no valid ONNX model, or refer to something outside of it."""


class TooLarge(DamagedModel):
    """A value has more numbers in a row than fit any memory: onnxruntime is not tried either."""


class NotNative(ImportRefused):
    """This use of an operator has no native code: it becomes part of an opaque stage, if allowed.

    Adapters raise it with the reason; the importer adds the node.
    """


__all__ = ["DamagedModel", "FlourError", "NotNative", "TooLarge"]
