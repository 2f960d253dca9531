"""Every error the object store raises, as one tree.

    StoreError
    ├── UnstorableValue    neither a numeric array nor a list of texts
    ├── BadDigest          a text that was passed as a digest is not one
    ├── MissingBlob        nothing is stored under this digest, or it vanished
    ├── DamagedBlob        something is stored, but not what its digest promises
    ├── ArchiveError       a one-file container is corrupted, hostile or of another version
    └── StoreClosed        the store or archive was closed before this call

Every message has four parts, always in this order: what went wrong, where, what was found
there, and a hint.
"""

from __future__ import annotations

#: Characters of a part of a message.
LONGEST = 2000


class Explained(Exception):
    """An error in four parts: what went wrong, where, what was found there, what to try next."""

    #: The hint of errors that have none of their own.
    usual_hint: str | None = None

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        found: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.what, self.where, self.found, self.hint = what, where, found, hint or self.usual_hint
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        for label, text in (("at", self.where), ("found", self.found), ("hint", self.hint)):
            if text:
                parts.append(f"  {label:<6} {_clipped(text)}")
        return "\n".join(parts)


def _clipped(text: str) -> str:
    """The text, shortened: names in damaged files may be megabytes long."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


class StoreError(Explained):
    """Something is wrong with a store, or with a value that it was given."""


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

    usual_hint = "the file is damaged, or of another kind: copy it, or save it, again"


class StoreClosed(StoreError):
    """The store or archive was closed before the call."""
