"""LightGBM and XGBoost models, read from their own files, and their wrappers inside pipelines."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules


@cache
def load() -> None:
    """Register the adapters of every library of boosters."""
    for found in iter_modules(__path__):
        import_module(f"{__name__}.{found.name}")
