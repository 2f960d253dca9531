"""The lines of memory that a call of an entry reads: who has them can ask for all at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from types import BuiltinFunctionType

import numpy as np

from oven.entry.builtin import NativeTable
from oven.run.native_run import NativeRun

#: Lines that one call asks for: some sixteen come at the same time.
MOST_LINES = 64
#: Larger tables are scratch memory; of parameters only the beginning is read by every row.
_TABLE_BYTES, _FIRST_BYTES = 4096, 128


def lines(function: object, *objects: object) -> bytes:
    """The addresses of these objects' lines, and of those that a call of `function` reads."""
    heads = ((id(each), type(each).__basicsize__) for each in objects)
    spans = chain(heads, *map(_memory, (*objects, function)))
    found = dict[int, None]()
    for start, size in spans:
        found |= dict.fromkeys(range(start & -64, start + size, 64))
        if len(found) >= MOST_LINES:
            break
    return np.array([*found][:MOST_LINES], np.int64).tobytes()


def _memory(item: object) -> Iterator[tuple[int, int]]:
    """The start and the size of what machine code reads by way of something."""
    if isinstance(item, BuiltinFunctionType):
        yield from ((id(each), type(each).__basicsize__) for each in (item, item.__self__))
        yield from _memory(item.__self__)
    elif isinstance(item, NativeRun):
        yield item.addresses[1], item.table_bytes
        yield from ((each.array.ctypes.data, min(each.nbytes, _FIRST_BYTES)) for each in item.kept)
    elif isinstance(item, np.ndarray) and item.nbytes <= _TABLE_BYTES:
        yield item.ctypes.data, item.nbytes
        yield from chain(*map(_memory, item.kept if isinstance(item, NativeTable) else ()))
