"""Buffers by size, one pool per thread that runs stages, so that they stay in its caches.

Buffers are made by a callable that is given a number of bytes. Its result is opaque: a bytearray,
an arena, a pinned page. Requests are rounded up to size classes, so that
jobs of different plans use the same buffers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from scheduler.errors import BadJob

Factory = Callable[[int], object]

# Bytes that an idle pool keeps, so that a process shrinks again after a large batch.
KEEP_BYTES = 64 << 20
SMALLEST = 64


def size_class(nbytes: int) -> int:
    """Return the size of the buffer for this many bytes: four classes per power of two.

    At most a quarter of a buffer is wasted, and there are few enough classes for sharing.
    """
    if nbytes <= SMALLEST:
        return SMALLEST
    step = 1 << (nbytes - 1).bit_length() - 3
    return -(-nbytes // step) * step


@dataclass(frozen=True, slots=True)
class BufferStats:
    """Counters of pools: buffers handed out and taken back, and buffers idle now."""

    acquired: int = 0
    returned: int = 0
    created: int = 0
    idle: int = 0
    idle_bytes: int = 0

    @property
    def in_use(self) -> int:
        """Buffers handed out and not back; any of them is a leak when no job runs."""
        return self.acquired - self.returned

    def __add__(self, other: BufferStats) -> BufferStats:
        return BufferStats(
            self.acquired + other.acquired,
            self.returned + other.returned,
            self.created + other.created,
            self.idle + other.idle,
            self.idle_bytes + other.idle_bytes,
        )


NO_BUFFERS = BufferStats()


class BufferPool:
    """The buffers of one thread. Another thread may bring one back."""

    __slots__ = (
        *("_factory", "_free", "_keep", "_lock", "acquired", "closed", "created", "idle_bytes"),
        "returned",
    )

    def __init__(self, factory: Factory = bytearray, *, keep: int = KEEP_BYTES) -> None:
        self._factory, self._keep = factory, keep
        self._free: dict[int, list[object]] = {}
        self._lock = threading.Lock()
        self.closed = False
        self.acquired = self.returned = self.created = self.idle_bytes = 0

    def acquire(self, nbytes: int) -> object:
        """Return a buffer of at least this many bytes, the one used last if there is a choice."""
        size = size_class(nbytes)
        with self._lock:
            free = self._free.get(size)
            if free:
                self.acquired += 1
                self.idle_bytes -= size
                return free.pop()
        # Outside the lock, as allocating may take long. Nothing is counted if it fails.
        buffer = self._factory(size)
        with self._lock:
            self.acquired += 1
            self.created += 1
        return buffer

    def give_back(self, buffer: object, nbytes: int) -> None:
        """Take back a buffer that was acquired for `nbytes`."""
        size = size_class(nbytes)
        with self._lock:
            if self.returned == self.acquired:
                raise BadJob("a buffer was given back that this pool had not handed out")
            self.returned += 1
            if self.idle_bytes + size <= self._keep:
                self._free.setdefault(size, []).append(buffer)
                self.idle_bytes += size

    def close(self) -> None:
        """Drop idle buffers now and later; buffers that are out can still be given back."""
        self.closed, self._keep = True, -1
        self.trim()

    def trim(self) -> int:
        """Drop all idle buffers; return their bytes."""
        with self._lock:
            freed_bytes, self.idle_bytes = self.idle_bytes, 0
            self._free.clear()
        return freed_bytes

    def stats(self) -> BufferStats:
        """Return the pool's counters."""
        with self._lock:
            idle = sum(len(free) for free in self._free.values())
            return BufferStats(self.acquired, self.returned, self.created, idle, self.idle_bytes)
