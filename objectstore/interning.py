"""One live object per content in the whole process, kept only while it is referenced."""

from __future__ import annotations

from threading import Lock
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary


class HasDigest(Protocol):
    """An object identified by its content."""

    @property
    def digest(self) -> str:
        """The digest of the content."""


T = TypeVar("T", bound=HasDigest)


class Interned(Generic[T]):
    """A weak table from digest to the one live object with that content; thread-safe."""

    def __init__(self) -> None:
        self._live: WeakValueDictionary[str, T] = WeakValueDictionary()
        self._lock = Lock()

    def find(self, digest: str) -> T | None:
        """The live object with this content, if there is one."""
        return self._live.get(digest)

    def keep_first(self, candidate: T) -> T:
        """The live object with this content; the new one if there is none yet."""
        with self._lock:
            return self._live.setdefault(candidate.digest, candidate)

    def keep_last(self, candidate: T) -> T:
        """Make the new object the live one for its content, and return it."""
        with self._lock:
            self._live[candidate.digest] = candidate
        return candidate
