"""The native code of flour.ops.trees.slices: scoring sixty-four rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flour.core.types import Type, Vector
from flour.ops.trees.slices import BYTE_LEAVES, ROWS, Members, SlicedTables, Slots
from flour.ops.trees.tiles import SIDE, Tiled, Turned

if TYPE_CHECKING:
    from flour.core.emission import Column, Emitter
    from flour.ops.trees.walk import LeafSums
    from objectstore import Blob

_BYTES = {"uint8": 1, "uint16": 2, "float32": 4, "float64": 8}


def column_value(
    e: Emitter, op: LeafSums, kind: Type, slots: Any, u: str, row: Callable[[], str]
) -> tuple[str, str]:
    """The value of a row at an address in a slot's column, and whether it counts as missing."""
    assert isinstance(kind, Vector)
    column = f"int64({e.load(e.address(slots.column), u, 'int32', constant=True)})"
    loaded = e.let(e.load(row(), column, kind.dtype, constant=True), kind.dtype).expr
    value = e.let(op.seen(e, loaded, kind), "float64").expr
    missing = f"{value} != {value}"
    if op.zeros:
        zero = e.load(e.address(slots.zero), u, "float64", constant=True)
        missing = f"({missing}) or abs({value}) <= {zero}"
    return value, e.let(f"({missing})", "bool").expr


class Slicing:
    """Writes the scoring of blocks of 64 rows."""

    def __init__(
        self,
        e: Emitter,
        op: LeafSums,
        tables: SlicedTables,
        x: Column,
        out: Column,
        turned: Turned | None,
    ) -> None:
        self.e, self.op, self.tables, self.x, self.out = e, op, tables, x, out
        self.turned = turned
        self.tests = e.size(len(tables.tests.column))
        if turned is not None:
            self.tile = e.scratch(turned.dtype, ROWS * SIDE * len(turned.groups.array))
        self.seen = e.scratch("float64", ROWS)
        self.ranks = lines(e, 2 * tables.shares + tables.shared)
        self.work = work(e, tables)
        self.leaves = e.scratch(tables.leaf, ROWS * tables.trees)
        self.sums = e.scratch(op.dtype, ROWS * len(op.base))
        self.with_sets = len(tables.members.column) > 0
        if self.with_sets:
            self.fails = "" if tables.shared else e.scratch("uint64", tables.most)
            self.codes = e.scratch("uint8", ROWS * len(tables.members.column))
            self.members = e.scratch("uint64", tables.blocks)

    def blocks(self, count: str) -> None:
        """Score `count` blocks from the first row on; the last block may have fewer rows."""
        e = self.e
        begin(e, self.tables, self.work, count)
        with e.loop(count) as block:
            first = e.var(f"{block} * {ROWS}", "h")
            row_count = e.var(f"min({ROWS}, {e.rows} - {first})", "h")
            self._look(first, row_count)
            with e.loop(self.out.size) as o, e.loop(str(ROWS)) as row:
                start = e.at(self.op.base, o, self.op.dtype)
                e.store(self.sums, f"{o} * {ROWS} + {row}", start, self.op.dtype)
            with e.loop(e.size(len(self.tables.starts.array) - 1)) as g:
                self._group(g, row_count)
                self._sum(g, row_count)
            self._write(first, row_count)

    # --- what the rows hold ----------------------------------------------------------------------

    def _look(self, first: str, row_count: str) -> None:
        """The ranks of the values, and the categories."""
        tables = self.tables
        if self.turned is None:
            self._look_at_each(first, row_count)
        else:
            self._turn(self.turned, first, row_count)
        if self.with_sets:
            self._categories(first, row_count)
        if tables.shared:
            e = self.e
            with e.loop(e.size(self.tables.shared)) as k:
                index, passed = self._set(k)
                e.line(f"bytes64(~{passed}, {self.ranks} + {index} * {ROWS})")

    def _turn(self, turned: Turned, first: str, row_count: str) -> None:
        """The ranks of transposed columns, all at once."""
        e, tests = self.e, self.tables.tests
        held = f"{turned.dtype}{'_narrowed' * turned.narrowed}"
        e.line(turn(e, self.x, turned.groups, held, first, row_count, self.tile))
        size = _BYTES[turned.dtype]
        with e.loop(self.tests) as u:
            offset = e.load(e.address(turned.place), u, "int64", constant=True)
            values = e.var(f"{self.tile} + {offset}", "r")
            zero = f"{e.address(turned.zeros)} + {u} * {size}"
            share, shares = (self._fact(tests, key, u) for key in ("share", "shares"))
            ranks = f"{self.ranks} + {share}, {shares}"
            if turned.dtype == "float32":
                start, parts = (loaded(e, table, u) for table in (turned.start, turned.parts))
                thresholds = f"{e.address(turned.threshold)} + {start}, {parts}"
                e.line(f"rank64_float32({values}, {zero}, {thresholds}, {ranks}, {row_count})")
            else:
                start, power = (self._fact(tests, key, u) for key in ("start", "power"))
                thresholds = f"{e.address(self.tables.threshold)} + {start}, {power}"
                e.line(f"seen64({values}, {zero}, {self.seen})")
                e.line(f"rank64({self.seen}, {thresholds}, {ranks}, {row_count})")

    def _look_at_each(self, first: str, row_count: str) -> None:
        """The ranks of values that are no floats, column after column."""
        e, tables = self.e, self.tables
        threshold = e.address(tables.threshold)
        with e.loop(self.tests) as u:
            with e.loop(str(ROWS)) as row:
                value, missing = self._value(tables.tests, u, first, row_count, row)
                e.store(self.seen, row, f"(math.nan if {missing} else {value})", "float64")
            facts = ("start", "power", "share", "shares")
            start, power, share, shares = (self._fact(tables.tests, key, u) for key in facts)
            where = f"{threshold} + {start}, {power}, {self.ranks} + {share}, {shares}"
            e.line(f"rank64({self.seen}, {where}, {row_count})")

    def _fact(self, slots: Slots | Members, key: str, u: str) -> str:
        """A whole number of a slot's description, by its field."""
        return loaded(self.e, getattr(slots, key), u)

    def _value(
        self, slots: Slots | Members, u: str, first: str, row_count: str, row: str
    ) -> tuple[str, str]:
        """A row's value in a slot's column, and whether it is taken for missing."""
        place = f"({first} + min({row}, {row_count} - 1))"
        there = lambda: self.e.var(self.x.row(place), "r")  # noqa: E731 (it is called in its turn)
        return column_value(self.e, self.op, self.x.type, slots, u, there)

    def _categories(self, first: str, row_count: str) -> None:
        """For each slot the last six bits of each code, and the rows of every 64 categories.

        Behind those stand the rows that belong to every set (missing, and missing goes left).
        """
        e, members = self.e, self.tables.members
        with e.loop(e.size(len(members.column))) as u:
            start, blocks = (self._fact(members, key, u) for key in ("start", "blocks"))
            fill = e.load(e.address(members.fill), u, "float64", constant=True)
            always = e.let(f"{fill} == {fill}", "bool").expr
            with e.loop(f"{blocks} + 1") as b:
                e.store(self.members, f"{start} + {b}", "uint64(0)", "uint64")
            with e.loop(row_count) as row:
                value, missing = self._value(members, u, first, row_count, row)
                least = "> -1.0" if self.op.signed else ">= 0.0"
                inside = f"{value} {least} and {value} < float64(64 * {blocks})"
                code = e.var(f"int64({value}) if not {missing} and {inside} else 0", "k")
                e.store(self.codes, f"{u} * {ROWS} + {row}", f"{code} & 63", "uint8")
                index = e.var(f"{start} + ({blocks} if {missing} else {code} >> 6)", "k")
                counted = f"(({always}) if {missing} else ({inside}))"
                bit = f"(uint64(1 if {counted} else 0) << uint64({row}))"
                rows = e.load(self.members, index, "uint64")
                e.store(self.members, index, f"{rows} | {bit}", "uint64")

    # --- trees -----------------------------------------------------------------------------------

    def _span(self, table: str, g: str) -> tuple[str, str]:
        """The first of a group's nodes in a table, and their number."""
        return span(self.e, getattr(self.tables, table), g)

    def _group(self, g: str, row_count: str) -> None:
        """Compute the leaves of a group's trees that each row reaches."""
        e, tables = self.e, self.tables
        given, tests = self.ranks, ""
        if self.with_sets and not tables.shared:
            self._numbers(g)
            self._sets(g)
            given, tests = self.fails, "known"
        split(e, tables, g, (given, tests), self.work, self.leaves, row_count)

    def _numbers(self, g: str) -> None:
        """Compute the rows that fail each node that tests a number."""
        e, tables = self.e, self.tables
        start, count = self._span("first_number", g)
        nodes = f"{e.address(tables.numbers)} + {start} * 8"
        e.line(f"fails64({nodes}, {count}, {self.ranks}, {self.fails})")

    def _sets(self, g: str) -> None:
        """Compute the rows that fail each node that tests for a set of categories."""
        e = self.e
        start, count = self._span("first_set", g)
        with e.loop(count) as k:
            index, passed = self._set(f"({start} + {k})")
            e.store(self.fails, index, f"~{passed}", "uint64")

    def _set(self, k: str) -> tuple[str, str]:
        """The index to store a set's rows at, and the bits of the rows that are in the set."""
        e, tables = self.e, self.tables
        nodes, words = e.address(tables.sets), e.address(tables.words)
        at = e.var(f"2 * {k}", "h")
        node = e.var(e.load(nodes, at, "int64", constant=True), "h")
        offset = e.var(e.load(nodes, f"{at} + 1", "int64", constant=True), "h")
        slot = e.var(f"{node} & 65535", "h")
        where, blocks = (self._fact(tables.members, key, slot) for key in ("start", "blocks"))
        passed = e.var(e.load(self.members, f"{where} + {blocks}", "uint64"), "m")
        codes = f"{self.codes} + {slot} * {ROWS}"
        with e.loop(blocks) as b:
            bits = e.load(words, f"{offset} + {b}", "uint64", constant=True)
            rows = e.load(self.members, f"{where} + {b}", "uint64")
            e.line(f"{passed} = {passed} | (member64({codes}, {bits}) & {rows})")
        return f"({node} >> 32)", passed

    # --- sums ------------------------------------------------------------------------------------

    def _sum(self, g: str, row_count: str) -> None:
        """The values of the leaves of a group's trees, to each row's sums."""
        e, op, tables = self.e, self.op, self.tables
        first, count = self._span("starts", g)
        if len(op.base) > 1:
            with e.loop(count) as t:
                leaves = f"{self.leaves} + {t} * {ROWS * _BYTES[tables.leaf]}"
                self._add(e.var(f"{first} + {t}", "t"), leaves, row_count)
            return
        trees = f"{self.leaves}, {count}, {e.address(tables.offset)} + {first} * 8"
        rest = f"{e.address(tables.value)}, {self.sums}, {row_count}"
        e.line(f"fold64_{tables.leaf}_{op.dtype}({trees}, {rest})")

    def _add(self, t: str, leaves: str, row_count: str) -> None:
        """The values of a tree's leaves, to each row's sums."""
        e, op, tables = self.e, self.op, self.tables
        offset = e.var(e.load(e.address(tables.offset), t, "int64", constant=True), "h")
        target = e.load(e.address(op.target), t, "int32", constant=True)
        first = e.var(f"int64({target})", "h")
        size = _BYTES[op.dtype]
        values, intrinsic = e.address(tables.value), f"add64_{tables.leaf}_{op.dtype}"
        span = e.size(op.value.shape[1])
        with e.loop(span) as v:
            leaf_values = f"{values} + ({offset} * {span} + {v}) * {size}"
            sums = f"{self.sums} + ({first} + {v}) * {ROWS * size}"
            e.line(f"{intrinsic}({leaves}, {leaf_values}, {span}, {sums}, {row_count})")

    def _write(self, first: str, row_count: str) -> None:
        """The sums of the rows that are there."""
        e, op = self.e, self.op
        by = e.number(op.divisor, op.dtype) if op.divisor else ""
        with e.loop(row_count) as row:
            into = e.var(self.out.row(f"({first} + {row})"), "w")
            with e.loop(self.out.size) as o:
                total = e.load(self.sums, f"{o} * {ROWS} + {row}", op.dtype)
                e.store(into, o, f"{total} / {by}" if by else total, op.dtype)


def work(e: Emitter, tables: SlicedTables | Tiled) -> str:
    """Memory for the ways of 64 rows down the trees of a group."""
    if tables.leaf == "uint8":
        return lines(e, BYTE_LEAVES + tables.most)
    if tables.paired:  # more than the masks take
        return lines(e, BYTE_LEAVES + tables.paired.most)
    return e.scratch("uint64", 2 * tables.most + 1)


def lines(e: Emitter, count: int) -> str:
    """Memory for so many vectors of 64 bytes, each in one line of the cache."""
    memory = e.scratch("uint8", ROWS * (count + 1))
    return e.var(f"({memory} + {ROWS - 1}) & -{ROWS}", "r")


def begin(e: Emitter, tables: SlicedTables | Tiled, memory: str, blocks: str) -> None:
    """Write what that memory has to hold before the first tree, if there are blocks at all."""
    if tables.leaf == "uint8":
        leaves = e.size(min(tables.most + 1, BYTE_LEAVES))
        e.line(f"leaves64({memory}, {leaves} if {blocks} > 0 else 0)")
    elif tables.paired:
        with e.block("if not bit_masks:"):
            e.line(f"leaves64({memory}, {BYTE_LEAVES} if {blocks} > 0 else 0)")


def split(
    e: Emitter,
    tables: SlicedTables | Tiled,
    g: str,
    given: tuple[str, str],
    memory: str,
    leaves: str,
    row_count: str,
) -> None:
    """Emit the leaves of a group's trees, given ranks, or how the rows that fail are known."""
    where, tests = given
    split64 = f"split64_{tests}{'_' * bool(tests)}"
    rest = f"{where}, {memory}, {leaves}"
    start, count = span(e, tables.first, g)

    def of(nodes: Blob) -> str:
        return f"({e.address(nodes)} + {start} * 8, {count}, {rest}"

    if tables.leaf == "uint8":
        first, trees = span(e, tables.starts, g)
        roots = f"{e.address(tables.roots)} + {first} * 8, {trees}, {row_count}"
        chosen = f"{split64}uint8{of(tables.nodes)}, {roots})"
        masked = tables.masked if isinstance(tables, SlicedTables) else None
        by_masks = f"{split64}masks{of(masked)})" if masked else ""
    else:
        by_masks, pairs = f"{split64}uint16{of(tables.nodes)})", tables.paired
        chosen = ""
        if pairs:
            start, count = span(e, pairs.first, g)
            roots = f"{e.address(pairs.roots)} + {g} * 16, 1, {row_count}"
            chosen = f"{split64}pairs{of(pairs.nodes)}, {roots})"
    if not (by_masks and chosen):
        e.line(by_masks or chosen)
        return
    with e.block("if bit_masks:"):
        e.line(by_masks)
    with e.block("else:"):
        e.line(chosen)


def span(e: Emitter, table: Blob, t: str) -> tuple[str, str]:
    """The first of a tree's nodes and their number, from a table of the trees' first nodes."""
    ends = (e.load(e.address(table), f"{t} + {i}", "int64", constant=True) for i in (0, 1))
    start, end = (e.var(bound, "h") for bound in ends)
    return start, f"{end} - {start}"


def loaded(e: Emitter, table: Blob, u: str) -> str:
    """A local holding a whole number of a table."""
    return e.var(e.load(e.address(table), u, "int64", constant=True), "h")


def turn(
    e: Emitter, x: Column, groups: Blob, held: str, first: str, row_count: str, tile: str
) -> str:
    """Emit the transposition of columns of 64 rows."""
    kind: Any = x.type
    rows = f"{x.row(first)}, {x.stride}, {row_count}, {x.size}"
    arguments = f"{rows}, {e.address(groups)}, {e.size(len(groups.array))}, {tile}"
    return f"turn64_{kind.dtype}_{held}({arguments})"
