"""The operators, one family a file; `load()` registers all of them.

A new family needs no entry anywhere: every module in this folder is imported, but only when the
first operator is asked for, so that `import flour` stays cheap.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


@cache
def load() -> tuple[ModuleType, ...]:
    """Every operator family, imported (which registers the operators and their adapters)."""
    return tuple(import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))


def __getattr__(name: str) -> object:
    if name == "FAMILIES":
        return load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
