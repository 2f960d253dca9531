"""What can go wrong with stored parameters.

    StoreError                  anything below
    ├── UnstorableValue         the value given is no numeric array and no list of texts
    ├── BadDigest               a text that was passed as a digest is not one
    ├── MissingBlob             nothing is stored under this digest (or it vanished)
    ├── DamagedBlob             something is stored, but not what its digest promises
    ├── ArchiveError            a one-file container is corrupted, hostile or of another version
    └── StoreClosed             the store was closed before this call

Every message has the same four parts in the same order: what went wrong, where, what was found there, and what to do
about it.
"""

from __future__ import annotations


class StoreError(Exception):
    """The base of every error the object store raises."""

    def __init__(self, what: str, where: str = "", found: str = "", hint: str = "") -> None:
        super().__init__(what, where, found, hint)
        self.what = what
        self.where = where
        self.found = found
        self.hint = hint

    def __str__(self) -> str:
        rows = (("where", self.where), ("found", self.found), ("hint", self.hint))
        return "\n".join([self.what, *(f"  {name}: {text}" for name, text in rows if text)])


class UnstorableValue(StoreError):
    """The value is neither a numeric or boolean array nor a list of texts."""


class BadDigest(StoreError):
    """A digest is 32 lower-case hexadecimal characters; this text is not."""


class MissingBlob(StoreError):
    """Nothing is stored under this digest, or its file vanished."""


class DamagedBlob(StoreError):
    """A stored parameter does not have the content its digest promises."""


class ArchiveError(StoreError):
    """A one-file container is corrupted, hostile, or written by another version."""


class StoreClosed(StoreError):
    """The store or archive was closed before it was asked."""
