"""Plans in service: catalog and prediction calls.

Runtime()                       many plans by name, answered by two engines
InferenceSession(model)         an ONNX model with the methods of onnxruntime's session
onnx_backend                    ONNX's standard backend interface
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flour.core.code_users import code_users
from flour.core.modules import imported
from flour.core.provenance import belongs_to_us

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oven import Plan
    from runtime.onnx.session import InferenceSession
    from runtime.runtime import Runtime
    from runtime.service.endpoint import Endpoint
    from runtime.service.stats import RuntimeStats

__all__ = ["Endpoint", "InferenceSession", "Runtime", "RuntimeStats"]

belongs_to_us(__file__)


def use_code(plans: Sequence[Plan]) -> None:
    """Compile what serving these plans needs beyond their own code."""
    from runtime.warming import use

    use(plans)


code_users.append(use_code)

_LATER = {
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
