"""A priority queue whose items can be removed by name at any time."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")

# Entries of removed items are swept when they outnumber the others by this many.
_SLACK = 64

Rank = tuple[float, int]


class Heap(Generic[T]):
    """Items by rank; at most one item per name.

    Removing an item leaves its entry behind, to be skipped or swept later: removal is cheap, and
    memory stays in proportion to the number of queued items.
    """

    __slots__ = ("_count", "_entries", "_live")

    def __init__(self) -> None:
        # The third place makes entries of equal ranks comparable: the older one is first.
        self._entries: list[tuple[Rank, int, Hashable, T]] = []
        self._live: dict[Hashable, tuple[Rank, int, Hashable, T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._live)

    def push(self, rank: Rank, name: Hashable, item: T) -> None:
        """Add an item, in place of the one of this name; lower ranks come out first."""
        self._count += 1
        entry = (rank, self._count, name, item)
        self._live[name] = entry
        heappush(self._entries, entry)

    def pop(self) -> T:
        """Take out and return the first item."""
        while True:
            entry = heappop(self._entries)
            # Identity, as the name may have been taken out and pushed again with another rank.
            if self._live.get(entry[2]) is entry:
                del self._live[entry[2]]
                return entry[3]

    def rank(self) -> Rank:
        """Return the rank of the first item, infinity when there is none."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if self._live.get(entry[2]) is entry:
                return entry[0]
            heappop(entries)
        return (inf, 0)

    def discard(self, name: Hashable) -> bool:
        """Take out the item of this name, wherever it is; return whether there was one."""
        if self._live.pop(name, None) is None:
            return False
        if len(self._entries) > 2 * len(self._live) + _SLACK:
            self._entries = list(self._live.values())
            heapify(self._entries)
        return True
