"""Adapters of estimators that are compositions: they have no operator of their own.

A new module needs no entry anywhere: every one in this folder is imported with the first estimator.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules


@cache
def load() -> None:
    """Register the adapters of every estimator here."""
    for found in iter_modules(__path__):
        import_module(f"{__name__}.{found.name}")
