"""The operators, one family a file; `load()` registers all of them.

A new family needs no entry anywhere: every module in this folder is imported, but only when the
first operator is asked for, so that `import flour` stays cheap.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType


@cache
def load() -> tuple[ModuleType, ...]:
    """Every operator family, imported (which registers the operators and their adapters)."""
    modules = [item.name for item in walk_packages(__path__, f"{__name__}.")]
    return tuple(import_module(name) for name in modules)


def __getattr__(name: str) -> object:
    if name == "FAMILIES":
        return load()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
