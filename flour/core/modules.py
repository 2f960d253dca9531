"""Modules of ours, imported when they are first needed: which one has an operator, or an adapter.

scripts/generate.py writes flour/core/modules_index.py. Where it does not know a name, or is out
of date, every module is imported: slower, and the same result.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

#: The folders whose modules define operators or adapters.
_FOLDERS = (
    *("flour.ops", "flour.sklearn.estimators", "flour.boosters", "flour.embeddings"),
    "flour.onnx",
)


@contextmanager
def paused_collector() -> Iterator[None]:
    """Inside, nothing looks for garbage.

    Importing modules and baking make objects that stay. They are enough to set off a look at all
    objects of the process, which takes longer than both where large libraries are loaded.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def imported(name: str) -> ModuleType:
    """A module of ours, imported while the collector pauses."""
    with paused_collector():
        return import_module(name)


def load_operator(name: str) -> None:
    """Import the module of the operator of this name; without a name, every operator."""
    from flour.core.modules_index import OPERATORS

    _load(OPERATORS, name, _FOLDERS[:1])


def load_adapter(name: str) -> None:
    """Import the module that adapts the class of this dotted name; without a name, every one."""
    from flour.core.modules_index import ADAPTERS

    _load(ADAPTERS, name, _FOLDERS[:-1])


def load_onnx(name: str) -> None:
    """Import the adapters of this "domain:operator" of ONNX; without a name, every one."""
    from flour.core.modules_index import ONNX

    _load(ONNX, name, _FOLDERS[-1:])


def _load(index: dict[str, str], name: str, folders: tuple[str, ...]) -> None:
    if not name:
        for folder in folders:
            load_folder(folder)
    elif name in index:
        module = index[name]
        try:
            imported(module)
        except ModuleNotFoundError as problem:
            if problem.name != module:
                raise


@cache
def load_folder(folder: str) -> None:
    """Import every module of a package of ours."""
    for found in walk_packages(imported(folder).__path__, f"{folder}."):
        imported(found.name)
