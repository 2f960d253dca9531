"""Recent results by the digest of their input, least recently used ones first to go."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from flour.core.sparse import Sparse

#: Keys up to this size are kept as they are, longer ones as a digest.
_SHORT = 256
_TEXT = 4096
_MOST_ROWS = 256
_ENTRY_BYTES = 400
_VALUES = (str, int, float, bool, type(None))


class Results:
    """A cache of values by (group, key), bounded in bytes."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self._entries: OrderedDict[tuple[int, Hashable], tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, group: int, key: Hashable) -> Any:
        """The value, or None."""
        with self._lock:
            entry = self._entries.get((group, key))
            if entry is None:
                return None
            self._entries.move_to_end((group, key))
            return entry[0]

    def put(self, group: int, key: Hashable, value: object) -> None:
        """Keep a value, at the cost of those not used for longest."""
        size = _ENTRY_BYTES + size_of(key) + size_of(value)
        if size > self.budget // 8:  # one large result is not worth many small ones
            return
        with self._lock:
            old = self._entries.pop((group, key), None)
            self.used += size - (old[1] if old else 0)
            self._entries[group, key] = (value, size)
            while self.used > self.budget:
                _, (_, gone) = self._entries.popitem(last=False)
                self.used -= gone

    def drop(self, group: int) -> None:
        """Forget all of a group."""
        with self._lock:
            for entry in [each for each in self._entries if each[0] == group]:
                self.used -= self._entries.pop(entry)[1]


def size_of(value: object) -> int:
    """About how many bytes a column takes."""
    if isinstance(value, np.ndarray):
        return value.nbytes if value.dtype != object else sum(map(size_of, value.ravel()))
    if isinstance(value, Sparse):
        return value.data.nbytes + value.indices.nbytes + value.indptr.nbytes
    if isinstance(value, Mapping):
        return sum(map(size_of, value.values()))
    if isinstance(value, str | bytes):
        return 56 + len(value)
    return 8 + sum(map(size_of, value)) if isinstance(value, list | tuple) else 32


def freeze(value: object) -> None:
    """Make a value read-only, as several callers will read it."""
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    elif isinstance(value, Sparse):
        for part in (value.data, value.indices, value.indptr):
            part.setflags(write=False)
    elif isinstance(value, Mapping):
        for part in value.values():
            freeze(part)


def key_of(block: object) -> Hashable | None:
    """A key that equal blocks have in common; None for blocks that are not looked at."""
    if isinstance(block, np.ndarray):
        if block.dtype.kind not in "biuf" or not block.ndim or len(block) > _MOST_ROWS:
            return None
        return (block.dtype.str, block.shape, _short(block.tobytes()))
    if isinstance(block, Mapping):
        parts = [(name, key_of(column)) for name, column in block.items()]
        return None if any(key is None for _, key in parts) else tuple(parts)
    if isinstance(block, list):
        return _list_key(block)
    return ("value", _list_key([block])) if isinstance(block, _VALUES) else None


def _list_key(block: Sequence[Any]) -> Hashable | None:
    if len(block) > _MOST_ROWS:
        return None
    if len(block) == 1 and type(block[0]) is str and len(block[0]) <= _TEXT:
        return ("text", block[0])  # comparing it is faster than a digest
    if all(type(value) is str for value in block):
        lengths = ",".join(str(len(value)) for value in block)
        text = f"{lengths};{''.join(block)}"
        return text if len(text) <= _SHORT else _short(text.encode("utf-8", "surrogatepass"))
    if all(isinstance(value, _VALUES) for value in block):
        # 1, 1.0 and True are equal and are not the same.
        return tuple((type(value).__name__, repr(value)) for value in block)
    if len(block) == 1 and isinstance(block[0], list):
        inner = _list_key(block[0])
        return None if inner is None else ("row", inner)
    return None


def _short(data: bytes) -> bytes:
    return data if len(data) <= _SHORT else blake2b(data, digest_size=16).digest()
