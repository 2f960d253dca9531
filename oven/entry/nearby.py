"""The memory that a call of an entry reads, line by line.

Where many plans take turns, none of it is in the processor's caches, and each line is known only
from the one before. A caller that has the addresses asks for all lines at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType

import numpy as np

from oven.entry.builtin import NativeTable
from oven.entry.interpreter import list_items
from oven.run.native_run import NativeRun

#: Lines that one call asks for: some sixteen come at the same time.
MOST_LINES = 64
#: Larger tables are scratch memory, or read here and there.
_TABLE_BYTES, _FIRST_BYTES = 4096, 128
_LINE = 64


def lines(function: object, *objects: object) -> bytes:
    """The addresses of these objects' lines, and of those that a call of `function` reads."""
    heads = [(id(each), type(each).__basicsize__) for each in objects]
    found = dict.fromkeys(
        line
        for start, size in (*heads, *_of_all((*objects, function)))
        for line in range(start - start % _LINE, start + size, _LINE)
    )
    return np.array([*found][:MOST_LINES], np.int64).tobytes()


def _tables(item: object) -> Iterator[tuple[int, int]]:
    """The start and the size of everything that machine code reads by way of an object."""
    match item:
        case NativeTable():
            yield id(item), type(item).__basicsize__
            yield item.ctypes.data, item.nbytes
            yield from _of_all(item.kept)
        case NativeRun():
            yield item.addresses[1], item.table_bytes
            for blob in item.kept:
                yield blob.array.ctypes.data, min(blob.nbytes, _FIRST_BYTES)
        case np.ndarray() if item.nbytes <= _TABLE_BYTES:
            yield item.ctypes.data, item.nbytes
        case list():
            yield list_items(item), 8 * len(item)
        case tuple():
            yield from _of_all(item)
        case BuiltinFunctionType():
            yield id(item), type(item).__basicsize__
            yield from _tables(item.__self__)


def _of_all(items: Iterable[object]) -> Iterator[tuple[int, int]]:
    for each in items:
        yield from _tables(each)
