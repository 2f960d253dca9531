"""A folder of models, kept in service: our own layout, MLServer's and Triton's.

with Runtime() as runtime, Repository("models", runtime) as models:
    models.load_all()
    models.watch(seconds=2.0)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runtime.http.wire.interfaces import ModelState
    from runtime.repository.errors import RepositoryError
    from runtime.repository.listing import FolderModel, Scan, Trouble
    from runtime.repository.repository import FolderEvent, Repository

__all__ = [
    "FolderEvent",
    "FolderModel",
    "ModelState",
    "Repository",
    "RepositoryError",
    "Scan",
    "Trouble",
]

_LATER = {
    "ModelState": "runtime.http.wire.interfaces",
    "RepositoryError": "runtime.repository.errors",
    **dict.fromkeys(("FolderModel", "Scan", "Trouble"), "runtime.repository.listing"),
    **dict.fromkeys(("FolderEvent", "Repository"), "runtime.repository.repository"),
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
