"""The native code of flour.ops.trees.tiles: scoring sixty-four rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flour.ops.trees.slices import ROWS
from flour.ops.trees.slicing import begin, span, split, turn, work
from flour.ops.trees.tiles import SIDE, Tiled
from objectstore import Blob

if TYPE_CHECKING:
    from collections.abc import Callable

    from flour.core.emission import Column, Emitter
    from flour.ops.trees.trees import Trees
    from flour.ops.trees.walk import Nodes

    #: Uses the leaves of rows: takes the first row and the number of rows.
    Finish = Callable[[str, str], None]


class Tiling:
    """Writes the scoring of blocks of 64 rows."""

    def __init__(self, e: Emitter, op: Nodes, tables: Tiled, x: Column) -> None:
        self.e, self.tables, self.x = e, tables, x
        self.trees = e.size(len(op.roots))
        self.tile = e.scratch(tables.dtype, ROWS * SIDE * len(tables.groups.array))
        #: The rows that fail each node: bits, or bytes of few rows where leaves' numbers are bytes.
        self.tests = "tested" if tables.leaf == "uint8" else "known"
        self.fails = e.scratch("uint64", 4 * len(tables.nodes.array))
        self.work = work(e, tables)
        #: The leaf of each tree that every row reaches.
        self.leaves = e.scratch(tables.leaf, ROWS * len(op.roots))

    def blocks(self, count: str, finish: Finish) -> None:
        """Score `count` blocks from the first row on; the last block may have fewer rows."""
        e = self.e
        begin(e, self.tables, self.work, count)
        with e.loop(count) as block:
            first = e.var(f"{block} * {ROWS}", "h")
            row_count = e.var(f"min({ROWS}, {e.rows} - {first})", "h")
            self._test(first, row_count)
            with e.loop(e.size(len(self.tables.starts.array) - 1)) as g:
                self._group(g, row_count)
            finish(first, row_count)

    def _test(self, first: str, row_count: str) -> None:
        """Transpose the columns, and compute the rows that fail each node."""
        e, tables = self.e, self.tables
        e.line(turn(e, self.x, tables.groups, tables.dtype, first, row_count, self.tile))
        count = e.size(len(tables.zeros.array))
        columns = f"{e.address(tables.slots)}, {e.address(tables.zeros)}, {count}"
        nodes = f"{e.address(tables.limits)}, {e.address(tables.places)}, {self.fails}"
        held = f"{tables.dtype}{'_bytes' * (self.tests == 'tested')}"
        e.line(f"above64_{held}({self.tile}, {columns}, {nodes}, {row_count})")

    def _group(self, g: str, row_count: str) -> None:
        """Compute the leaves of a group's trees that each row reaches."""
        e, tables = self.e, self.tables
        start, _ = span(e, tables.first, g)
        fails = f"{self.fails} + {start} * {'test_bytes' if self.tests == 'tested' else 8}"
        size = ROWS * (1 if tables.leaf == "uint8" else 2)
        first, _ = span(e, tables.starts, g)
        leaves = f"{self.leaves} + {first} * {size}"
        split(e, tables, g, (fails, self.tests), self.work, leaves, row_count)

    # --- using the leaves ------------------------------------------------------------------------

    def sums(self, op: Trees, out: Column) -> Finish:
        """The values of all trees' leaves, side by side where there are several."""
        e, tables = self.e, self.tables
        single = len(op.base) == 1
        totals = e.scratch(op.dtype, ROWS) if single else ""

        def finish(first: str, row_count: str) -> None:
            trees = f"{self.leaves}, {self.trees}, {e.address(tables.offset)}"
            values, base = e.address(tables.value), e.address(op.base, op.dtype)
            by = e.address(Blob.of([float(op.divisor or 1)]), op.dtype)
            if not single:
                rows = f"{out.row(first)}, {out.stride}, {row_count}"
                arguments = f"{trees}, {values}, {out.size}, {base}, {by}, {rows}"
                e.line(f"sum64_{tables.leaf}_{op.dtype}({arguments})")
                return
            variant = "few" if tables.few else tables.leaf
            arguments = f"{trees}, {values}, {base}, {by}, {totals}, {row_count}"
            e.line(f"total64_{variant}_{op.dtype}({arguments})")
            with e.loop(row_count) as row:
                total = e.load(totals, row, op.dtype)
                e.store(out.row(f"({first} + {row})"), "0", total, op.dtype)

        return finish

    def numbers(self, out: Column) -> Finish:
        """The numbers of the leaves, a column for each tree."""
        e, tables = self.e, self.tables

        def finish(first: str, row_count: str) -> None:
            values = e.address(tables.value)
            with e.loop(self.trees) as t:
                start = e.var(e.load(e.address(tables.offset), t, "int64", constant=True), "h")
                with e.loop(row_count) as row:
                    leaf = f"int64({e.load(self.leaves, f'{t} * {ROWS} + {row}', tables.leaf)})"
                    number = e.load(values, f"{start} + {leaf}", "int64", constant=True)
                    e.store(out.row(f"({first} + {row})"), t, number, "int64")

        return finish
