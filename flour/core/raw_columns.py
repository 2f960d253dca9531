"""The raw input column, by number, that each column of a value is made of."""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

#: Made of no column at all (a constant), and of more than one.
NO_COLUMN, SEVERAL = -1, -2
Made = NDArray[np.int64]


def merged(*parts: Made) -> Made:
    """The raw columns of a result made of all of these; one column meets every column."""
    return reduce(_both, parts, np.full(1, NO_COLUMN))


def merged_all(*parts: Made) -> int:
    """The raw column that all columns of all of these are made of."""
    found = {int(number) for part in parts for number in np.unique(part)} - {NO_COLUMN}
    return SEVERAL if len(found) > 1 else found.pop() if found else NO_COLUMN


def _both(left: Made, right: Made) -> Made:
    either = np.where(left == NO_COLUMN, right, left)
    same = (left == right) | (left == NO_COLUMN) | (right == NO_COLUMN)
    return np.where(same, either, SEVERAL)
