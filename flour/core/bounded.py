"""A dict with a bound: what was learnt of models is kept for so many of them, the latest."""

from __future__ import annotations

import threading
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(dict[K, V]):
    """A dict of at most `most` entries: a new one removes the oldest."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self._lock = threading.Lock()

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            super().__setitem__(key, value)
            while len(self) > self.most:
                del self[next(iter(self))]

    def first(self, key: K, value: V) -> V:
        """The value of this key; this one if there is none. Equal keys get one value."""
        with self._lock:
            found = super().setdefault(key, value)
            while len(self) > self.most:
                del self[next(iter(self))]
        return found
