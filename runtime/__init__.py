"""Plans in service: catalog, prediction calls, drop-in estimators.

Runtime()                       many plans by name, answered by two engines
compile(estimator, sample)      one estimator with its own methods, as native code
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.dropin import Compiled, compile  # noqa: A004 (runtime.compile)
    from runtime.endpoint import Endpoint
    from runtime.runtime import Runtime
    from runtime.stats import RuntimeStats

__all__ = ["Compiled", "Endpoint", "Runtime", "RuntimeStats", "compile"]

_LATER = {
    "Compiled": "runtime.dropin",
    "compile": "runtime.dropin",
    "Endpoint": "runtime.endpoint",
    "Runtime": "runtime.runtime",
    "RuntimeStats": "runtime.stats",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
