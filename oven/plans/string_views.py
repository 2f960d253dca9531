"""Views of strings as addresses and lengths, in one pass of native code.

A view has 16 bytes: the length, then up to twelve bytes of the string, or four of them and where it
is: a buffer and a place in it, as Arrow has it, or an address, as DuckDB has it. Where a string is
missing, anything may stand in its view: its address is not used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from oven.compiler.words import *
from oven.plans.native_reader import NativeReader


def string_views(params: int, io: int, n: int, scratch: int) -> int:
    """Write addresses and lengths, column by column."""
    out, bases, count = ld_int64(io, 0), ld_int64(io, 1), ld_int64(io, 2)
    for column in range(ld_int64(io, 3)):
        views = ld_int64(io, 4 + column)
        for i in range(n):
            view = views + 16 * i
            size, where = int64(ld_int32(view, 0)), view + 4
            if size > 12:
                where = ld_int64(view, 1)
                if bases != 0:
                    number = where & 4294967295
                    where = where >> 32
                    if number < count:
                        where += ld_int64(bases, number)
            st_int64(out, 2 * i, where)
            st_int64(out, 2 * i + 1, size)
        out += 16 * n
    return 0


VIEWS = NativeReader(string_views)


def fill(cells: NDArray[np.int64], begins: Sequence[int], bases: NDArray[np.int64] | None) -> bool:
    """Write the address and the length of each string; False where native code is not there yet.

    The strings are those of columns of views, which begin at these addresses. `bases` are the
    buffers of Arrow's views; None for DuckDB's.
    """
    if not VIEWS.is_there:
        VIEWS.prepare()
        return False
    known = (0, 0) if bases is None else (bases.ctypes.data, len(bases))
    io = np.array([cells.ctypes.data, *known, len(begins), *begins], np.int64)
    return VIEWS(io, len(cells) // len(begins))
