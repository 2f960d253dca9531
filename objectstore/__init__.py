"""The object store: every fitted number and dictionary lives once, named by its content."""

from __future__ import annotations

from objectstore.accounting import OwnerReport, StoreReport
from objectstore.archive import Archive
from objectstore.blob import Blob
from objectstore.digest import combine
from objectstore.errors import (
    ArchiveError,
    BadDigest,
    DamagedBlob,
    MissingBlob,
    StoreClosed,
    StoreError,
    UnstorableValue,
)
from objectstore.filestore import FileStore
from objectstore.store import FsckReport, MemoryStore, Store, StoreStats
from objectstore.strings import Parameter, Strings

__all__ = [
    "Archive",
    "ArchiveError",
    "BadDigest",
    "Blob",
    "DamagedBlob",
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
    "combine",
]
