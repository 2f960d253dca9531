"""What can be wrong with an ONNX model, and what keeps an operator from being native code."""

from __future__ import annotations

from flour.core.errors import FlourError, ImportRefused


class DamagedModel(ImportRefused):
    """The bytes are no valid ONNX model, or they ask for something outside of it."""


class TooLarge(DamagedModel):
    """A value has more numbers in a row than any memory: nobody is asked to make it."""


class NotNative(ImportRefused):
    """This use of an operator has no native code: it becomes part of an opaque stage, if allowed.

    Adapters raise it with the reason; the importer adds the node.
    """


__all__ = ["DamagedModel", "FlourError", "NotNative", "TooLarge"]
