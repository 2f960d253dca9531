"""The operators, one family a file; importing this package registers all of them.

A new family needs no entry anywhere: every module in this folder is imported.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

FAMILIES = tuple(import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
