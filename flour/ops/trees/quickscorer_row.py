"""One row through an ensemble of small trees, a tree at a time, without waiting for any node.

All nodes of a tree (at most 64) are tested at once: the ranks of the row's columns are a table of
128 bytes that one instruction looks up for 64 nodes, and another compares them with the nodes'
ranks. Each node that fails rules out the leaves on its left: after an AND for each, the 64 bits are
the leaves still possible, of which the leftmost is the row's leaf.

The nodes that a category fails are computed in advance: a row of masks for each category.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.ops.trees.slices import SlicedTables, Slices
from flour.ops.trees.slicing import column_value
from objectstore import Blob

if TYPE_CHECKING:
    from flour.core.emission import Column, Emitter
    from flour.ops.trees.walk import LeafSums
    from flour.ops.trees.walking import Begin, Take

#: The number of ranks that one instruction chooses from.
_RANKS = 128
#: A rank that no node fails.
_NEVER = 255
#: The largest size of the masks of categories, in bytes: in total, and per node.
_MOST_BYTES, _MOST_A_NODE = 1 << 21, 32


class RowTables(NamedTuple):
    """The nodes of an ensemble, `width` of them for each tree."""

    #: For each tree the slots of its nodes, and their ranks, byte after byte.
    nodes: Blob
    #: For each node the leaves that remain possible if it fails.
    masks: Blob
    #: The content of each leaf, tree after tree.
    content: Blob
    #: For each tested column of categories, the first of its rows of masks; the masks give the
    #: nodes of each tree that fail for each category, then for unknown ones, then for missing ones.
    rows: Blob
    fails: Blob
    width: int


def row_tables(sliced: Slices, content: NDArray[Any]) -> RowTables | None:
    """The ensemble for one row (leaf number k holds content[k]), or None where it does not suit."""
    width = 32 if int(sliced.leaves[sliced.table.roots].max()) <= 32 else 64
    blocks = sliced.set_blocks()
    rows = 64 * blocks + 2
    size = int(rows.sum()) * len(sliced.table.roots) * width // 8
    most = int(sliced.leaves[sliced.table.roots].max())
    many = 2 * int(sliced.shares.sum()) > _RANKS or sliced.table.mostly_slots
    if most > 64 or many or size > min(_MOST_BYTES, _MOST_A_NODE * len(sliced.tree)):
        return None
    inner, table = sliced.inner, sliced.table
    trees, position = sliced.tree[inner], sliced.place_in_tree
    nodes = np.zeros((len(table.roots), 2, width), np.uint8)
    nodes[:, 1] = _NEVER
    numbers = ~table.sets[inner]
    where = trees[numbers], position[numbers]
    nodes[where[0], 0, where[1]] = sliced.number[inner[numbers]]
    nodes[where[0], 1, where[1]] = sliced.rank[inner[numbers]]
    masks = np.full((len(table.roots), width), ~np.uint64(0))
    left = sliced.left[inner]
    passed, first = (part[left].astype(np.uint64) for part in (sliced.leaves, sliced.position))
    every = np.where(passed == 64, ~np.uint64(0), (np.uint64(1) << passed) - np.uint64(1))
    masks[trees, position] = ~(every << first)
    kind = f"uint{width}"
    return RowTables(
        nodes=Blob.of(nodes.reshape(-1)),
        masks=Blob.of(masks.astype(kind).reshape(-1)),
        content=Blob.of(content[table.left[sliced.outline.leaf_order()]]),
        rows=Blob.of(np.cumsum(rows) - rows if rows.size else np.zeros(1, np.int64)),
        fails=Blob.of(_fails(sliced, blocks).astype(kind).reshape(-1)),
        width=width,
    )


def _fails(sliced: Slices, blocks: NDArray[np.int64]) -> NDArray[np.uint64]:
    """For every category of every column, the bits of the nodes of each tree that it fails."""
    nodes = sliced.set_nodes()
    if not nodes.size:
        return np.zeros(1, np.uint64)
    trees = len(sliced.table.roots)
    used, which = np.unique(sliced.table.slot[nodes], return_inverse=True)
    goes_left = sliced.table.slots[used - 1] % 2 != 0
    position = sliced.place_in_tree[sliced.table.sets[sliced.inner]]
    bit = np.uint64(1) << position.astype(np.uint64)
    passes = sliced.members(nodes, int(blocks.max()))
    parts = []
    for slot in range(len(used)):
        of_slot = which == slot
        table = np.zeros((64 * int(blocks[slot]) + 2, trees), np.uint64)
        failing = np.ones((of_slot.sum(), len(table)), bool)
        failing[:, : len(table) - 2] = ~passes[of_slot, : len(table) - 2]
        failing[:, -1] = not goes_left[slot]
        at, value = sliced.tree[nodes[of_slot]], bit[of_slot]
        for code in range(len(table)):
            chosen = failing[:, code]
            np.bitwise_or.at(table[code], at[chosen], value[chosen])
        parts.append(table)
    return np.concatenate(parts)


class OneRow:
    """Writes the scoring of rows one by one."""

    def __init__(
        self, e: Emitter, op: LeafSums, sliced: SlicedTables, tables: RowTables, x: Column
    ) -> None:
        self.e, self.op, self.sliced, self.tables, self.x = e, op, sliced, tables, x
        self.trees = e.size(len(op.roots))
        self.tests = e.size(len(sliced.tests.column))
        self.ranks = e.scratch("uint8", _RANKS)
        self.with_sets = len(sliced.members.column) > 0
        if self.with_sets:
            self.columns = e.size(len(sliced.members.column))
            self.starts = e.scratch("int64", len(sliced.members.column))

    def one_by_one(self, begin: Begin, take: Take, end: Begin, start: str) -> None:
        """Row after row, tree after tree: `take` gets the content of each tree's leaf."""
        e, tables = self.e, self.tables
        kind, size = f"uint{tables.width}", tables.width // 8
        offset, content = e.address(self.sliced.offset), e.address(tables.content)
        nodes, masks, fails = (
            e.address(part) for part in (tables.nodes, tables.masks, tables.fails)
        )
        with e.loop(e.rows, start) as i:
            self._look(e.var(self.x.row(i), "r"))
            begin(i)
            with e.loop(self.trees) as t:
                failed = e.var(f"{kind}(0)", "m")
                if self.with_sets:
                    with e.loop(self.columns) as u:
                        row = e.load(self.starts, u, "int64")
                        more = e.load(fails, f"{row} + {t}", kind, constant=True)
                        e.line(f"{failed} = {failed} | {more}")
                node = f"{nodes} + {t} * {2 * tables.width}"
                mask = f"{masks} + {t} * {tables.width * size}"
                leaf = e.var(f"leaf{tables.width}({node}, {mask}, {self.ranks}, {failed})", "k")
                index = f"{e.load(offset, t, 'int64', constant=True)} + {leaf}"
                take(i, t, e.load(content, index, "float64", constant=True))
            end(i)

    def _look(self, row: str) -> None:
        """The ranks of the row's columns, and the masks for its categories."""
        e, tests = self.e, self.sliced.tests
        threshold = e.address(self.sliced.threshold)
        with e.loop(self.tests) as u:
            value, missing = column_value(e, self.op, self.x.type, tests, u, lambda: row)
            facts = ("start", "power", "share", "shares")
            start, power, share, shares = (
                e.var(e.load(e.address(getattr(tests, key)), u, "int64", constant=True), "h")
                for key in facts
            )
            rank = e.var(f"rank_alone({value}, {threshold} + {start}, {power})", "k")
            with e.loop(shares) as s:
                share_rank = e.var(f"min(max({rank} - 254 * {s}, 0), 254)", "k")
                index = e.var(f"({share} >> 6) + 2 * {s}", "h")
                e.store(self.ranks, index, f"255 if {missing} else {share_rank}", "uint8")
                e.store(self.ranks, f"{index} + 1", f"0 if {missing} else {share_rank}", "uint8")
        if self.with_sets:
            self._categories(row)

    def _categories(self, row: str) -> None:
        e, members = self.e, self.sliced.members
        blocks, rows = e.address(members.blocks), e.address(self.tables.rows)
        with e.loop(self.columns) as u:
            value, missing = column_value(e, self.op, self.x.type, members, u, lambda: row)
            count = e.var(f"64 * {e.load(blocks, u, 'int64', constant=True)}", "h")
            least = "> -1.0" if self.op.signed else ">= 0.0"
            inside = f"{value} {least} and {value} < float64({count})"
            code = e.var(f"int64({value}) if {inside} else {count}", "k")
            e.line(f"{code} = {count} + 1 if {missing} else {code}")
            first = e.load(rows, u, "int64", constant=True)
            e.store(self.starts, u, f"({first} + {code}) * {self.trees}", "int64")
