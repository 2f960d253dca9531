"""A priority queue from which anything can be taken out at any time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

# Entries of things taken out are swept when they outnumber the others by this many.
_SLACK = 64


class Heap(Generic[T]):
    """Items by rank, then by number; at most one item per number.

    Taking an item out leaves its entry behind, to be skipped or swept later, so that it costs
    nothing when it happens and memory stays in proportion to what is really queued.
    """

    __slots__ = ("_entries", "_live")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, T]] = []
        self._live: dict[int, tuple[float, int, T]] = {}

    def __len__(self) -> int:
        return len(self._live)

    def push(self, rank: float, number: int, item: T) -> None:
        """Add an item; lower ranks come out first, and lower numbers among equal ranks."""
        entry = (rank, number, item)
        self._live[number] = entry
        heappush(self._entries, entry)

    def pop(self) -> T:
        """Take out and return the first item."""
        while True:
            entry = heappop(self._entries)
            # Identity, as a number may have been taken out and pushed again with another rank.
            if self._live.get(entry[1]) is entry:
                del self._live[entry[1]]
                return entry[2]

    def rank(self) -> float:
        """Return the rank of the first item, infinity when there is none."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if self._live.get(entry[1]) is entry:
                return entry[0]
            heappop(entries)
        return float("inf")

    def discard(self, number: int) -> bool:
        """Take out the item with this number, wherever it is; return whether there was one."""
        if self._live.pop(number, None) is None:
            return False
        if len(self._entries) > 2 * len(self._live) + _SLACK:
            self._entries = list(self._live.values())
            heapify(self._entries)
        return True
