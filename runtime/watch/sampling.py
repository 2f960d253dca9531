"""The choice of rows in service to look at: a share of them, or a number a minute and some more."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError, is_number
from runtime.service.entry import SAMPLE

#: Rows a minute that are looked at in full, of calls by the entry: a busy endpoint has them in its
#: first moment, and one of a thousand requests a day never has as many.
ROWS_A_MINUTE = 3000.0

#: Rows of a block that are looked at; of longer ones, as many.
_BLOCK = 1 << 17


class Sampling:
    """Decides for one observer, with each batch; rows stand for those that were passed over.

    With a `share`, so many of all rows are looked at. Without, blocks of the engines are looked at
    in full, and so are calls by the entry until they have had `rows_a_minute`: beyond, one row in
    SAMPLE.
    """

    def __init__(
        self,
        share: float | None = None,
        rows_a_minute: float = ROWS_A_MINUTE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if share is not None and not (is_number(share) and 0 < share <= 1):
            raise ParameterError("a sample is a share of the rows", found=repr(share), hint="0.01")
        if not (is_number(rows_a_minute) and rows_a_minute >= 0):
            found, hint = f"rows_a_minute={rows_a_minute!r}"[:80], "a number of rows, 0 or more"
            raise ParameterError("so many rows cannot be looked at", found=found, hint=hint)
        self._share, self._rate, self._clock = share, float(rows_a_minute), clock
        self._left, self._since = self._rate, clock()
        self._owed = self._weight_owed = 0.0

    @property
    def every(self) -> float:
        """One row in so many is looked at now."""
        if self._share is not None:
            return 1 / self._share
        before, self._since = self._since, self._clock()
        passed = max(0.0, self._since - before)  # a clock may go back
        self._left = min(self._rate, self._left + passed * self._rate / 60)
        return 1.0 if self._left >= 1 else SAMPLE

    @property
    def rest(self) -> int:
        """Mask of the calls by the entry to be shown: see runtime.service.entry."""
        return (1 << (int(min(self.every, SAMPLE)).bit_length() - 1)) - 1

    def chosen(
        self, rows: int, calls: int, *, by_entry: bool
    ) -> tuple[NDArray[np.int64] | None, int]:
        """The places of the rows to look at (None for all), and what each of them stands for.

        The batch has come in place of `calls` like it.
        """
        every = self.every if by_entry or self._share is not None else 1.0
        every = max(every, rows / _BLOCK)
        if calls >= every:
            self._left -= rows * by_entry
            return None, calls
        owed = self._owed + rows * calls / every
        count, weight = int(owed), int(self._weight_owed + every)
        self._owed = owed - count
        if count:
            self._weight_owed += every - weight
        return np.linspace(0, rows - 1, count).astype(np.int64), weight
