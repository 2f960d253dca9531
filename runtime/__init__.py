"""Plans in service: catalog, prediction calls, drop-in estimators.

Runtime()                       many plans by name, answered by two engines
compile(estimator, sample)      one estimator with its own methods, as native code
InferenceSession(model)         an ONNX model with the methods of onnxruntime's session
onnx_backend                    ONNX's standard backend interface
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.dropin import Compiled, compile  # noqa: A004 (runtime.compile)
    from runtime.endpoint import Endpoint
    from runtime.onnx_session import InferenceSession
    from runtime.runtime import Runtime
    from runtime.stats import RuntimeStats

__all__ = ["Compiled", "Endpoint", "InferenceSession", "Runtime", "RuntimeStats", "compile"]

_LATER = {
    "Compiled": "runtime.dropin",
    "compile": "runtime.dropin",
    "Endpoint": "runtime.endpoint",
    "InferenceSession": "runtime.onnx_session",
    "Runtime": "runtime.runtime",
    "RuntimeStats": "runtime.stats",
}


def __getattr__(name: str) -> object:
    if name == "onnx_backend":
        return import_module("runtime.onnx_backend")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
