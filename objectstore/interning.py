"""One live object per content in the whole process, kept only while somebody uses it."""

from __future__ import annotations

from threading import Lock
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary


class HasDigest(Protocol):
    """Anything named by its content."""

    @property
    def digest(self) -> str:
        """The name."""
        ...


T = TypeVar("T", bound=HasDigest)


class Interned(Generic[T]):
    """A weak table from digest to the one live object with that content; thread-safe."""

    def __init__(self) -> None:
        self._live: WeakValueDictionary[str, T] = WeakValueDictionary()
        self._lock = Lock()

    def find(self, digest: str) -> T | None:
        """The live object with this content, if there is one."""
        return self._live.get(digest)

    def keep_first(self, made: T) -> T:
        """The object already live with this content, else the one made, which is from now on."""
        with self._lock:
            return self._live.setdefault(made.digest, made)

    def keep_last(self, made: T) -> T:
        """The one made, which from now on stands for its content."""
        with self._lock:
            self._live[made.digest] = made
        return made
