"""Ensembles of decision trees as one data-driven operator: no model has code of its own.

Each tree adds its leaf's values to the outputs from column `target` on, in the order of the trees,
starting from `base`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flour.core.chunked_array import Long, whole
from flour.core.op import Columns
from flour.core.types import Type, Vector
from flour.ops.trees.bounds import bounds
from flour.ops.trees.lean import packed_for, walks_of
from flour.ops.trees.lockstep import LANES, pack
from flour.ops.trees.quickscorer_row import OneRow, row_tables
from flour.ops.trees.slices import PAIRED_SHORT_LEAST, ROWS, Slices, held_as, slices
from flour.ops.trees.slicing import Slicing, begin, span, split, turn, work
from flour.ops.trees.tiles import SIDE, Tiled, full_blocks, tiles, turned
from flour.ops.trees.walk import LeafSums, Walk
from objectstore import Blob

if TYPE_CHECKING:
    from collections.abc import Callable

    from flour.core.emission import Column, Emitter
    from flour.ops.trees.walk import Nodes

    #: Uses the leaves of rows: takes the first row and the number of rows.
    Finish = Callable[[str, str], None]


class Trees(LeafSums):
    """The sum over the trees of the leaf values each row reaches, divided at the end if asked."""

    def bounds(self, unknown: NDArray[np.bool_]) -> Trees:
        """The ensemble of the bounds of its outputs, two each, where columns are not known."""
        return bounds(self, unknown)

    def remark(self) -> str:
        tiled, content = self._tiled(None), self.held().astype(np.float64)
        packed = pack(self, content, held_as(self, None), self.alike())
        ranked = slices(self) if tiled is None else None
        small = None if ranked is None else row_tables(ranked, content)
        together = f"{LANES} walked together"
        if packed is not None and packed.in_turns:
            together = "all walked in turns"
        one = "walked one by one" if packed is None else together
        remark = one if small is None else "all nodes of a tree at once"
        sliced = None if ranked is None else ranked.layout()
        if tiled is not None:
            remark += f"; from {tiled.least} rows on {ROWS} rows at a time, numbers compared"
        elif sliced is not None:
            least = sliced.cost.least[1 if small is None else 0]
            remark += f"; from {least} rows on {ROWS} rows at a time"
        held_once = {*_blobs(packed), *_blobs(tiled), *_blobs(sliced), *_blobs(small)}
        each = sum(blob.array.nbytes for blob in held_once) / len(self.feature)
        return f"{len(self.roots)} trees, {remark}; tables of {each:.1f} bytes a node"

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        (x,) = inputs
        tiled = None if e.lean == "rows" else self._tiled(x.type)
        if tiled is not None:
            blocks = tiled.full_blocks(e)
            tiling = Tiling(e, self, tiled, x)
            tiling.blocks(blocks, tiling.sums(self, out))
            self._walks(e, x, out, start=f"{blocks} * {ROWS}")
            return
        ranked = None if e.lean == "rows" else slices(self, x.type)
        if ranked is None:
            self._walks(e, x, out)
            return
        condition = ranked.cost().condition
        if not condition:
            self._sliced(e, ranked, x, out)
            return
        with e.block(f"if {condition}:"):
            self._sliced(e, ranked, x, out)
        with e.block("else:"):
            # Many deep trees take less time in turns for one row than in lock-step for eight.
            self._walks(e, x, out, start="0" if len(self.roots) > LANES else "")

    def _sliced(self, e: Emitter, ranked: Slices, x: Column, out: Column) -> None:
        """Blocks of rows by ranks, and the rest one by one."""
        sliced = ranked.layout()
        small = row_tables(ranked, self.held().astype(np.float64))
        quick, walked, narrow = (e.size(least) for least in sliced.cost.least)
        if sliced.cost.paired:
            narrow = f"({narrow} if wide_registers else max({narrow}, {PAIRED_SHORT_LEAST}))"
        least = f"{walked} if bit_masks else {narrow}"
        if small is not None:
            least = f"{quick} if permutes128 else {least}"
        blocks = full_blocks(e, f"({least})")
        Slicing(e, self, sliced, x, out, turned(ranked, x.type)).blocks(blocks)
        rest = f"{blocks} * {ROWS}"
        if small is None:
            self._walks(e, x, out, start=rest)
            return
        with e.block("if permutes128:"):
            sums = _Sums(e, self, out)
            one = OneRow(e, self, sliced, small, x)
            one.one_by_one(sums.begin_alone, sums.take_alone, sums.end_alone, rest)
        with e.block("else:"):
            self._walks(e, x, out, start=rest)

    def _tiled(self, x: Type | None) -> Tiled | None:
        """The tables for blocks that test numbers, if these cost less."""
        value = self.value.array
        return (
            tiles(self, x, value.astype(self.dtype)) if value.shape[1] == len(self.base) else None
        )

    def ordered(self, order: NDArray[np.int64]) -> Blob:
        """The leaves' values in this order: flat, as for blocks, so that one copy is kept."""
        return Blob.of(self.value.array[order].astype(self.dtype).reshape(-1))

    def _walks(self, e: Emitter, x: Column, out: Column, *, start: str = "") -> None:
        """Walk the rows: few one by one, a block (without a start) eight at a time."""
        content = self.held().astype(np.float64)
        packed, lean = packed_for(e, self, content, held_as(self, x.type), self.alike())
        if packed is None:
            self._one_by_one(e, x, out, start or "0")
            return
        sums = _Sums(e, self, out, packed.order)
        alone = walks_of(e, self, packed, x, lean, block=False)
        if start:
            alone.one_by_one(sums.begin_alone, sums.take_alone, sums.end_alone, start)
            return
        with e.block(f"if {e.rows} < {LANES}:"):
            alone.one_by_one(sums.begin_alone, sums.take_alone, sums.end_alone)
        with e.block("else:"):
            walks = walks_of(e, self, packed, x, lean, block=True)
            walks.by_the_block(sums.begin, sums.take, sums.end)

    def _one_by_one(self, e: Emitter, x: Column, out: Column, start: str) -> None:
        """Row after row, tree after tree."""
        roots, sums = e.address(self.roots), _Sums(e, self, out)
        value = e.address(whole(self.value), self.dtype)
        with e.loop(e.rows, start) as i:
            row = e.var(x.row(i), "r")
            sums.begin(i)
            with e.loop(e.size(len(self.roots))) as t:
                root = f"int64({e.load(roots, t, 'int32', constant=True)})"
                leaf = self.descend(e, x, row, root)
                content = leaf
                if self.value.shape[1] == 1:
                    content = e.load(value, leaf, self.dtype, constant=True)
                sums.take(i, t, content)
            sums.end(i)


def _blobs(tables: object) -> Iterator[Blob]:
    """The arrays of tables, and of the tables in them."""
    if isinstance(tables, Blob):
        yield tables
    elif isinstance(tables, tuple):
        for part in tables:
            yield from _blobs(part)


class _Sums:
    """Writes how the values of leaves are added up, in the order of the trees."""

    def __init__(
        self, e: Emitter, op: Trees, out: Column, order: NDArray[np.int64] | None = None
    ) -> None:
        self.e, self.op, self.out = e, op, out
        #: The values in the order in which walks number leaves; empty where leaves hold them.
        self.counted = "" if order is None else e.address(op.ordered(order))
        self.single = len(op.base) == 1
        self.total = ""
        self.by = e.number(op.divisor, op.dtype) if op.divisor else ""

    def begin(self, i: str) -> None:
        """Every output starts from its base."""
        e, into = self.e, self.out.row(i)
        with e.loop(self.out.size) as o:
            e.store(into, o, e.at(self.op.base, o, self.op.dtype), self.op.dtype)

    def value(self, content: str) -> str:
        """The one value of a leaf."""
        dtype = self.op.dtype
        if self.counted:
            return self.e.load(self.counted, content, dtype, constant=True)
        return f"{dtype}({content})"

    def take(self, i: str, t: str, content: str) -> None:
        """Add one tree's leaf, whose content is its value or the position of its values."""
        e, op, dtype = self.e, self.op, self.op.dtype
        into = e.var(self.out.row(i), "w")
        target = e.address(op.target)
        first = e.var(f"int64({e.load(target, t, 'int32', constant=True)})", "k")
        if op.value.shape[1] == 1:
            e.store(into, first, f"{e.load(into, first, dtype)} + {self.value(content)}", dtype)
            return
        value = self.counted or e.address(whole(op.value), dtype)
        span = e.size(op.value.shape[1])
        start = e.var(f"int64({content}) * {span}", "k")
        with e.loop(span) as v:
            one = e.load(value, f"{start} + {v}", dtype, constant=True)
            at = f"{first} + {v}"
            e.store(into, at, f"{e.load(into, at, dtype)} + {one}", dtype)

    def end(self, i: str) -> None:
        """A mean is divided."""
        e, into = self.e, self.out.row(i)
        if self.by:
            with e.loop(self.out.size) as o:
                total = e.load(into, o, self.op.dtype)
                e.store(into, o, f"{total} / {self.by}", self.op.dtype)

    # One output of one row alone is kept in a register: memory would cost a wait at every tree.

    def begin_alone(self, i: str) -> None:
        """Begin the sum of row `i`, the only one of its call."""
        if not self.single:
            self.begin(i)
            return
        start = self.e.at(self.op.base, "0", self.op.dtype)
        self.total = self.e.var(f"{self.op.dtype}({start})", "s")

    def take_alone(self, i: str, t: str, content: str) -> None:
        """Add the leaf that row `i`, the only one, reaches in a tree."""
        if self.single:
            self.e.line(f"{self.total} = {self.total} + {self.value(content)}")
        else:
            self.take(i, t, content)

    def end_alone(self, i: str) -> None:
        """Store the sum of row `i`, the only one of its call."""
        if self.single:
            total = f"{self.total} / {self.by}" if self.by else self.total
            self.e.store(self.out.row(i), "0", total, self.op.dtype)
        else:
            self.end(i)


class TreeLeaves(Walk):
    """The number of the leaf each row reaches, one column per tree."""

    #: The number of each leaf, as the training library counts them.
    number: Long

    def leaf_count(self) -> int:
        return len(self.number)

    def infer(self, x: Type) -> Vector:
        self._needs(x)
        return Vector(len(self.roots), "int64")

    def reference(self, x: Columns) -> Columns:
        x = self.rows(x)
        number = self.number.array.astype(np.int64)
        with self.together():
            leaves = [number[self.walk(x, int(root))] for root in self.roots.array]
        return np.stack(leaves, axis=1)

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        (x,) = inputs
        start, number = "0", self.number.array.astype(np.int64)
        tiled = None if e.lean == "rows" else tiles(self, x.type, number)
        if tiled is not None:
            blocks = tiled.full_blocks(e)
            tiling = Tiling(e, self, tiled, x)
            tiling.blocks(blocks, tiling.numbers(out))
            start = f"{blocks} * {ROWS}"
        self._walks(e, x, out, start)

    def _walks(self, e: Emitter, x: Column, out: Column, start: str) -> None:
        """Row after row."""
        numbers = np.arange(len(self.number)).astype(np.float64)
        packed, lean = packed_for(e, self, numbers, held_as(self, x.type))
        if packed is None or packed.order is None:
            number = e.address(whole(self.number), "int64")
        else:
            number = e.address(Blob.of(self.number.array[packed.order].astype(np.int64)))

        def take(i: str, t: str, content: str) -> None:
            leaf = e.load(number, f"int64({content})", "int64", constant=True)
            e.store(out.row(i), t, leaf, "int64")

        def nothing(i: str) -> None:
            """There is nothing to do for the whole row."""

        if packed is not None:
            walks = walks_of(e, self, packed, x, lean, block=False)
            walks.one_by_one(nothing, take, nothing, start)
            return
        roots, count = e.address(self.roots), e.size(len(self.roots))
        with e.loop(e.rows, start) as i:
            row = e.var(x.row(i), "r")
            with e.loop(count) as t:
                root = f"int64({e.load(roots, t, 'int32', constant=True)})"
                take(i, t, self.descend(e, x, row, root))


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
