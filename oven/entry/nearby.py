"""The memory that a call of an entry reads, line by line.

Where many plans take turns, none of it is in the processor's caches, and each line is known only
from the one before. A caller that has the addresses asks for all lines at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
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
    found = dict[int, None]()
    for start, size in chain.from_iterable(map(_memory, (*objects, function))):
        found |= dict.fromkeys(range(start - start % _LINE, start + size, _LINE))
        if len(found) >= MOST_LINES:
            break
    return np.array([*found][:MOST_LINES], np.int64).tobytes()


def _memory(item: object) -> Iterator[tuple[int, int]]:
    """The start and the size of an object, and of what machine code reads by way of it."""
    yield id(item), type(item).__basicsize__
    if isinstance(item, BuiltinFunctionType):
        yield from _memory(item.__self__)
    elif isinstance(item, np.ndarray):
        yield item.ctypes.data, item.nbytes
        for each in item.kept if isinstance(item, NativeTable) else ():
            yield from _kept(each)


def _kept(item: object) -> Iterator[tuple[int, int]]:
    """What machine code reads of something whose address is in a table."""
    if isinstance(item, NativeRun):
        yield item.addresses[1], item.table_bytes
        for blob in item.kept:
            yield blob.array.ctypes.data, min(blob.nbytes, _FIRST_BYTES)
    elif isinstance(item, np.ndarray):
        if item.nbytes <= _TABLE_BYTES:
            yield item.ctypes.data, item.nbytes
    elif isinstance(item, list):
        yield list_items(item), 8 * len(item)
    elif isinstance(item, BuiltinFunctionType):
        yield from _memory(item)
