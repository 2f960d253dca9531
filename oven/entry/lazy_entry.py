"""Entries behind an entry that are made at their first call.

Most plans are only ever asked in one way. What a plan's entry does not take itself, arrays by name
above all, goes to its fallback, and making one for every plan takes as long as loading it and half
of its memory. So the fallback of an entry can be a promise: the first call makes the real one, and
from then on the machine code goes there directly.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from oven.entry.builtin import NativeTable
from oven.entry.generator import FALLBACK

Call = Callable[[object], Any]


class LazyEntry:
    """A way in that is made when it is first taken.

    An array of numbers of another dtype than the entry's goes on to the fallback, which it would
    come to all the same.
    """

    __slots__ = ("__weakref__", "_dtype", "_fallback", "_made", "_make", "_table")

    def __init__(
        self, make: Callable[[], Call], fallback: Call, dtype: np.dtype[Any] | None = None
    ) -> None:
        self._make, self._fallback, self._dtype = make, fallback, dtype
        self._made: Call | None = None
        self._table: weakref.ref[NativeTable] | None = None

    def behind(self, entry: Any) -> None:
        """Be replaced in this entry's table as soon as there is something to go there."""
        # Weakly: the table keeps what it names, and a circle would outlive the plan.
        self._table = weakref.ref(entry.__self__)

    def __call__(self, data: object) -> Any:
        """What the real one answers."""
        if self._dtype is not None and isinstance(data, np.ndarray) and data.dtype != self._dtype:
            return self._fallback(data)
        return (self._made or self._settled())(data)

    def _settled(self) -> Call:
        """The real one; of two threads both may make it, and either is as good."""
        made = self._make()
        self._made = made
        table = None if self._table is None else self._table()
        if table is not None:
            # Kept beside this one, which calls may be on their way to.
            table.kept = (*table.kept, made)
            table[table.code.words.index(FALLBACK)] = id(made)
        return made
