"""Run consecutive native stages as one native call, a tile of rows at a time.

The program is a table of int64:

    [stages, rows a tile, then for each stage: function, parameters, columns,
     then for each of its columns: (mode, where, stride)]

with mode 0 for column `where` of the caller's io table, 1 for a buffer at scratch + `where`, and 2
for memory in the caller's io table that every tile reuses.
The scratch memory starts with one stage's io table. A stage that refuses its rows returns a value
other than 0; the run ends there and returns 1.
"""

from __future__ import annotations

from typing import NamedTuple

from oven.compiler.words import *


def run_stages(program: int, io: int, n: int, scratch: int) -> int:
    """Run all stages of a program; 1 if one refuses its rows."""
    stages = ldc_int64(program, 0)
    tile = ldc_int64(program, 1)
    done = 0
    while done < n:
        rows = min(tile, n - done)
        cursor = 2
        for _ in range(stages):
            function = ldc_int64(program, cursor)
            params = ldc_int64(program, cursor + 1)
            columns = ldc_int64(program, cursor + 2)
            cursor += 3
            for c in range(columns):
                where = ldc_int64(program, cursor + 1)
                stride = ldc_int64(program, cursor + 2)
                mode = ldc_int64(program, cursor)
                if mode != 1:
                    stride = ld_int64(io, 2 * where + 1)
                    where = ld_int64(io, 2 * where)
                    if mode == 0:
                        where += done * stride
                else:
                    where = scratch + where
                st_int64(scratch, 2 * c, where)
                st_int64(scratch, 2 * c + 1, stride)
                cursor += 3
            if call_stage(function, params, scratch, rows, scratch) != 0:
                return 1
        done += rows
    return 0


class Wire(NamedTuple):
    """The location of a stage's column: external, a tile buffer in scratch, or memory for rows."""

    mode: int
    where: int
    stride: int
