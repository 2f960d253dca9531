"""Plans in service: catalog, prediction calls, drop-in estimators.

Runtime()                       many plans by name, answered by two engines
compile(estimator, sample)      one estimator with its own methods, as native code
InferenceSession(model)         an ONNX model with the methods of onnxruntime's session
onnx_backend                    ONNX's standard backend interface
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flour.core.extension_points import declare, imported
from flour.core.provenance import belongs_to_us

if TYPE_CHECKING:
    from runtime.dropin import Compiled, compile  # noqa: A004 (runtime.compile)
    from runtime.onnx.session import InferenceSession
    from runtime.runtime import Runtime
    from runtime.service.endpoint import Endpoint
    from runtime.service.stats import RuntimeStats

__all__ = ["Compiled", "Endpoint", "InferenceSession", "Runtime", "RuntimeStats", "compile"]

belongs_to_us(__file__)

declare("code_users", "runtime.warming:use")

_LATER = {
    "Compiled": "runtime.dropin",
    "compile": "runtime.dropin",
    "Endpoint": "runtime.service.endpoint",
    "InferenceSession": "runtime.onnx.session",
    "Runtime": "runtime.runtime",
    "RuntimeStats": "runtime.service.stats",
}


def __getattr__(name: str) -> object:
    if name == "onnx_backend":
        return imported("runtime.onnx.backend")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(imported(_LATER[name]), name)
    globals()[name] = value
    return value
