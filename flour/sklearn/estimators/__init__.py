"""Adapters of estimators that are compositions: they have no operator of their own.

A new module needs no entry anywhere: every one in this folder is imported with the first estimator.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from flour import ops


@cache
def load() -> None:
    """Register the adapters of every estimator, those beside operators included."""
    ops.load()
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
