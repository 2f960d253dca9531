"""Which module has an operator, or an adapter: only that one is imported.

flour/modules_index.py is written by scripts/generate.py. Where it does not know a name, or is out
of date, every module is imported: slower, and the same result.
"""

from __future__ import annotations

from functools import cache
from pkgutil import walk_packages

from flour.core.extension_points import imported
from flour.modules_index import ADAPTERS, ONNX, OPERATORS

#: The folders whose modules define operators or adapters.
_FOLDERS = ("flour.ops", "flour.sklearn.estimators", "flour.boosters", "flour.onnx")


def load_operator(name: str) -> None:
    """Import the module of the operator of this name; without a name, every operator."""
    _load(OPERATORS, name, _FOLDERS[:1])


def load_adapter(name: str) -> None:
    """Import the module that adapts the class of this dotted name; without a name, every one."""
    _load(ADAPTERS, name, _FOLDERS[:-1])


def load_onnx(name: str) -> None:
    """Import the adapters of this "domain:operator" of ONNX; without a name, every one."""
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
