"""The object store: every fitted number and dictionary lives once, named by its content.

Parameters are loaded with the package; stores and archives, which need the file system, when
they are first asked for, so that importing a pipeline's types stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from objectstore.blob import DTYPES, Blob, aligned_room
from objectstore.closing import Closing
from objectstore.digest import combine
from objectstore.errors import (
    ArchiveError,
    BadDigest,
    DamagedBlob,
    Explained,
    MissingBlob,
    StoreClosed,
    StoreError,
    UnstorableValue,
)
from objectstore.strings import Parameter, Strings

if TYPE_CHECKING:
    from objectstore.accounting import OwnerReport, StoreReport
    from objectstore.archive import Archive
    from objectstore.filestore import FileStore
    from objectstore.store import FsckReport, MemoryStore, Store, StoreStats

__all__ = [
    "DTYPES",
    "Archive",
    "ArchiveError",
    "BadDigest",
    "Blob",
    "Closing",
    "DamagedBlob",
    "Explained",
    "FileStore",
    "FsckReport",
    "MemoryStore",
    "MissingBlob",
    "OwnerReport",
    "Parameter",
    "Store",
    "StoreClosed",
    "StoreError",
    "StoreReport",
    "StoreStats",
    "Strings",
    "UnstorableValue",
    "aligned_room",
    "combine",
]

_LATER = {
    "Archive": "objectstore.archive",
    "FileStore": "objectstore.filestore",
    "FsckReport": "objectstore.store",
    "MemoryStore": "objectstore.store",
    "OwnerReport": "objectstore.accounting",
    "Store": "objectstore.store",
    "StoreReport": "objectstore.accounting",
    "StoreStats": "objectstore.store",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_LATER[name]), name)
    globals()[name] = value
    return value
