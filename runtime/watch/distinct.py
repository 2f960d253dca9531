"""The distinct values of a column of objects, and columns of numbers that hold something else."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.data.coerce_values import is_missing

#: Rows whose places stay in the second cache, and the bits of an object's slot.
_BLOCK, _BITS = 1 << 14, 17
#: An odd number that spreads addresses: 2^64 divided by the golden ratio.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(64 - _BITS)


class _Scratch(threading.local):
    """Memory of a thread that it does not get anew for each block: its pages are there."""

    def __init__(self) -> None:
        self.owner = np.empty(1 << _BITS, np.int64)


_scratch = _Scratch()


def numbered_objects(values: NDArray[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """The number of each value among the distinct ones, and these in the order of appearance.

    Columns of words mostly have the same objects again and again. So a block's rows are first
    told apart by their objects' addresses, with numpy, and only one row of each object is looked up
    in a dictionary, which costs some fifty nanoseconds. All that is missing, however it is written,
    is None.
    """
    places, distinct = dict[Any, int](), list[Any]()
    codes = np.empty(len(values), np.int64)
    owner = _scratch.owner
    mostly_new = False
    for start in range(0, len(values), _BLOCK):
        part, out = values[start : start + _BLOCK], codes[start : start + _BLOCK]
        if mostly_new:  # each row has an object of its own
            out[:] = _looked_up(part, places, distinct)
            continue
        first, firsts = _first_of_same(np.ascontiguousarray(part), owner)
        mostly_new = len(firsts) > len(part) // 2
        numbers = np.empty(len(part), np.int64)
        numbers[firsts] = _looked_up(part[firsts], places, distinct)
        numbers.take(first, out=out, mode="clip")
    return codes, distinct


def _looked_up(
    values: NDArray[Any], places: dict[Any, int], distinct: list[Any]
) -> NDArray[np.int64]:
    listed = values.tolist()
    for each in dict.fromkeys(listed):
        if each in places:
            continue
        value = None if is_missing(each) else each
        places[each] = number = places.setdefault(value, len(distinct))
        if number == len(distinct):
            distinct.append(value)
    return np.fromiter(map(places.__getitem__, listed), np.int64, len(listed))


def _first_of_same(
    part: NDArray[Any], owner: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row a row that has the same object, and the rows that stand for others.

    `owner` has a place for each slot; what it held before does not matter.
    """
    rows = np.arange(len(part))
    # numpy gives no view of the addresses; the array outlives this copy of them.
    memory = (ctypes.c_uint64 * len(part)).from_address(part.ctypes.data)
    addresses = np.frombuffer(memoryview(memory), np.uint64)
    slots = addresses * _SPREAD
    slots >>= _SHIFT
    slots = slots.view(np.int64)
    owner[slots] = rows
    found = owner[slots]
    other = np.flatnonzero(addresses[found] != addresses)  # two objects in one slot
    found[other] = other
    return found, np.flatnonzero(found == rows)


def as_floats(values: NDArray[Any]) -> NDArray[Any]:
    """A column of numbers; what is no number in a column of objects is missing."""
    return values if values.dtype != object else np.array([_float(each) for each in values])


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # what is not taken raises
    except (TypeError, ValueError):
        return float("nan")
