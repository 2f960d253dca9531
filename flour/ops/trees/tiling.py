"""The native code of flour.ops.trees.tiles: what happens to sixty-four rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flour.ops.trees.slices import ROWS
from flour.ops.trees.slicing import span, turn
from flour.ops.trees.tiles import SIDE, Tiled
from objectstore import Blob

if TYPE_CHECKING:
    from collections.abc import Callable

    from flour.core.emission import Column, Emitter
    from flour.ops.trees.trees import Trees
    from flour.ops.trees.walk import Nodes

    #: What to do with the leaves of rows: of how many, from which on.
    Finish = Callable[[str, str], None]


class Tiling:
    """Writes the scoring of blocks of 64 rows."""

    def __init__(self, e: Emitter, op: Nodes, made: Tiled, x: Column) -> None:
        self.e, self.made, self.x = e, made, x
        self.trees = e.size(len(op.roots))
        self.tile = e.scratch(made.dtype, ROWS * SIDE * len(made.groups.array))
        self.fails = e.scratch("uint64", len(made.nodes.array))
        self.masks = e.scratch("uint64", 2 * made.most + 1)
        #: Which leaf of each tree every row reaches.
        self.leaves = e.scratch(made.leaf, ROWS * len(op.roots))

    def blocks(self, count: str, finish: Finish) -> None:
        """So many blocks from the first row on; of the last, what is there."""
        e = self.e
        with e.loop(count) as block:
            first = e.var(f"{block} * {ROWS}", "h")
            there = e.var(f"min({ROWS}, {e.rows} - {first})", "h")
            self._test(first, there)
            with e.loop(self.trees) as t:
                self._tree(t)
            finish(first, there)

    def _test(self, first: str, there: str) -> None:
        """Turn the columns, and find which rows fail which nodes."""
        e, made = self.e, self.made
        e.line(turn(e, self.x, made.groups, made.dtype, first, there, self.tile))
        count = e.size(len(made.zeros.array))
        columns = f"{e.address(made.slots)}, {e.address(made.zeros)}, {count}"
        nodes = f"{e.address(made.limits)}, {e.address(made.places)}, {self.fails}"
        e.line(f"above64_{made.dtype}({self.tile}, {columns}, {nodes})")

    def _tree(self, t: str) -> None:
        """Which leaf each row reaches."""
        e, made = self.e, self.made
        start, count = span(e, made.first, t)
        nodes, fails = f"{e.address(made.nodes)} + {start} * 8", f"{self.fails} + {start} * 8"
        leaves = f"{self.leaves} + {t} * {ROWS * (1 if made.leaf == 'uint8' else 2)}"
        e.line(f"split64_known_{made.leaf}({nodes}, {count}, {fails}, {self.masks}, {leaves})")

    # --- what becomes of the leaves --------------------------------------------------------------

    def sums(self, op: Trees, out: Column) -> Finish:
        """The values of all trees' leaves, side by side where there are several."""
        e, made = self.e, self.made
        single = len(op.base) == 1
        kept = e.scratch(op.dtype, ROWS) if single else ""

        def finish(first: str, there: str) -> None:
            trees = f"{self.leaves}, {self.trees}, {e.address(made.offset)}"
            values, base = e.address(made.value), e.address(op.base, op.dtype)
            by = e.address(Blob.of([float(op.divisor or 1)]), op.dtype)
            if not single:
                rows = f"{out.row(first)}, {out.stride}, {there}"
                given = f"{trees}, {values}, {out.size}, {base}, {by}, {rows}"
                e.line(f"sum64_{made.leaf}_{op.dtype}({given})")
                return
            way = "few" if made.few else made.leaf
            e.line(f"total64_{way}_{op.dtype}({trees}, {values}, {base}, {by}, {kept})")
            with e.loop(there) as row:
                total = e.load(kept, row, op.dtype)
                e.store(out.row(f"({first} + {row})"), "0", total, op.dtype)

        return finish

    def numbers(self, out: Column) -> Finish:
        """The numbers of the leaves, a column for each tree."""
        e, made = self.e, self.made

        def finish(first: str, there: str) -> None:
            values = e.address(made.value)
            with e.loop(self.trees) as t:
                start = e.var(e.load(e.address(made.offset), t, "int64", constant=True), "h")
                with e.loop(there) as row:
                    leaf = f"int64({e.load(self.leaves, f'{t} * {ROWS} + {row}', made.leaf)})"
                    number = e.load(values, f"{start} + {leaf}", "int64", constant=True)
                    e.store(out.row(f"({first} + {row})"), t, number, "int64")

        return finish
