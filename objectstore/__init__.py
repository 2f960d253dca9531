"""The object store: every fitted number and dictionary lives once, named by its content."""

from __future__ import annotations

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
from objectstore.strings import Parameter, Strings

__all__ = [
    "ArchiveError",
    "BadDigest",
    "Blob",
    "DamagedBlob",
    "MissingBlob",
    "Parameter",
    "StoreClosed",
    "StoreError",
    "Strings",
    "UnstorableValue",
    "combine",
]
