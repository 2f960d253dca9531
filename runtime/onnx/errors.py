"""The errors of an ONNX session, called as onnxruntime calls its own.

Each is an error of ours, with its four parts. Where the caller has imported onnxruntime, what is
raised is also an instance of onnxruntime's class of the same name, so that `except` clauses that
were written for it go on working.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from flour.core.errors import FlourError, InputError, OpaqueFailed
from flour.onnx.errors import DamagedModel


class OnnxError(FlourError):
    """Something is wrong with an ONNX model, or with what its session was given."""


class InvalidArgument(OnnxError, InputError):
    """A missing or unknown input or output, or one of another dtype, rank or shape (ValueError)."""


class Fail(OnnxError):
    """The model cannot be used, for a reason that has no class of its own."""


class InvalidGraph(OnnxError):
    """The model is no valid graph."""


class InvalidProtobuf(OnnxError):
    """The bytes are no model."""


class NoSuchFile(OnnxError):
    """There is no such file."""


class NotImplemented(OnnxError):  # noqa: A001 (onnxruntime's name for it)
    """Nothing here, onnxruntime included, can run an operator of the model."""


class RuntimeException(OnnxError):
    """A part of the model failed on these values."""


KINDS: dict[str, type[OnnxError]] = {
    kind.__name__: kind
    for kind in (
        *(InvalidArgument, Fail, InvalidGraph, InvalidProtobuf),
        *(NoSuchFile, NotImplemented, RuntimeException),
    )
}


def error(kind: type[OnnxError], what: str, **parts: str | None) -> OnnxError:
    """An error of this kind, which is onnxruntime's as well if that has been imported."""
    state = sys.modules.get("onnxruntime.capi.onnxruntime_pybind11_state")
    made: OnnxError = (kind if state is None else _also_theirs(kind.__name__))(what, **parts)
    return made


@cache
def _also_theirs(name: str) -> Any:
    kind = KINDS[name]
    theirs = getattr(sys.modules["onnxruntime.capi.onnxruntime_pybind11_state"], name, None)
    if theirs is None:
        return kind
    return type(kind.__name__, (kind, theirs), {"__doc__": kind.__doc__, "__module__": __name__})


def translated(problem: FlourError) -> OnnxError:
    """An error of the importer or of a plan as a session's."""
    match problem:
        case OnnxError():
            return problem
        case OpaqueFailed(code=code):
            kind = KINDS.get(code, RuntimeException)
        case DamagedModel():
            kind = InvalidProtobuf if "protobuf" in (problem.where or "") else InvalidGraph
        case InputError():
            kind = InvalidArgument
        case _:
            kind = Fail
    return error(kind, problem.what, where=problem.where, found=problem.found, hint=problem.hint)
