"""Nodes of four bytes, where memory counts for more than time: in exports.

Equal thresholds are stored once, as boosted trees have few for each column. A node has its
threshold's number, how far behind it its left child stands, and its slot. A leaf has its number
among the leaves of its tree, looks at the first slot, which passes every test, and leads to itself.
Nodes that do not fit have eight bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.ops.trees.lockstep import LANES, NodeTable, Outline, Packed, at_most, counted, pack
from flour.ops.trees.walking import Walks
from objectstore import Blob

if TYPE_CHECKING:
    from flour.core.emission import Column, Emitter
    from flour.ops.trees.walk import Nodes

#: A node has four bytes where its numbers fit, and else eight.
SMALL_BITS = 32


class Lean(NamedTuple):
    """The tables of lean nodes beside the nodes, and the fields of a node."""

    thresholds: Blob
    #: The number added to that in a leaf, for each tree.
    leaves: Blob
    #: The bits of a slot, and of the way to a child.
    slot: int
    child: int


def packed_for(
    e: Emitter, op: Nodes, leaf: NDArray[Any], held: str, same: NDArray[np.int64] | None = None
) -> tuple[Packed | None, Lean | None]:
    """The nodes as `pack` makes them, or lean ones where memory counts.

    There every set of categories has a slot: few nodes test for one.
    """
    packed = pack(op, leaf, held, same)
    if packed is None or not e.lean:
        return packed, None
    table = NodeTable(op)
    threshold = table.thresholds()
    assert threshold is not None, "it was packed"
    shared, table.slot = table.shared(always=True)
    threshold = np.where(table.sets, 0.0, threshold)  # minus infinity passes, and NaN does not
    if held == "float32":
        threshold = at_most(threshold, held)
    outline, leaves = Outline(table), Outline(table).leaf_order()
    number = np.zeros(len(table.inner), np.int64)
    limits, number[table.inner] = np.unique(threshold[table.inner], return_inverse=True)
    kept, of_leaf = counted(table.left[leaves], same)
    least = np.full(len(table.roots), len(leaves), np.int64)
    np.minimum.at(least, outline.tree[leaves], of_leaf)
    number[leaves] = of_leaf - least[outline.tree[leaves]]
    # A leaf's number is taken for a threshold's, too.
    limits = np.concatenate(
        [limits, np.zeros(max(0, int(number.max()) + 1 - len(limits)), limits.dtype)]
    )
    way = np.where(table.inner, outline.left - np.arange(len(table.inner)), 0)
    needed = (int(each.max()).bit_length() for each in (table.slot, way, number))
    slot, child, rest = needed
    if max(8, slot) + max(8, child) + rest <= SMALL_BITS:  # bytes of their own are read sooner
        slot, child = max(8, slot), max(8, child)
    nodes = (number << (slot + child)) | (way << slot) | table.slot
    if slot + child + rest <= SMALL_BITS:
        nodes = nodes.astype(np.uint32)
    roots = np.concatenate([table.roots, np.full(-len(table.roots) % LANES, leaves[0])])
    made = table.tables(
        Blob.of(nodes), Blob.of(roots), np.asarray(op.words.array, np.uint32), shared
    )
    made = made._replace(order=kept, together=True)
    return made, Lean(Blob.of(limits), Blob.of(least.astype(np.int32)), slot, child)


class LeanWalks(Walks):
    """Writes walks over lean nodes, eight at a time, in the language of emitted code."""

    def __init__(
        self, e: Emitter, op: Nodes, packed: Packed, x: Column, lean: Lean, *, block: bool
    ) -> None:
        super().__init__(e, op, packed, x, block=block)
        self.held_in = "int64" if packed.nodes.array.dtype == np.int64 else "uint32"
        self.looks, self.way = e.size((1 << lean.slot) - 1), e.size((1 << lean.child) - 1)
        self.slot, self.rest = e.size(lean.slot), e.size(lean.slot + lean.child)
        self.limits = str(lean.thresholds.array.dtype)
        self.thresholds, self.leaves = e.address(lean.thresholds), e.address(lean.leaves)

    def walk(self) -> None:
        """Walk from the nodes in `places`, which hold the numbers in the leaves afterwards."""
        e, lanes = self.e, range(LANES)
        at = [e.var(e.load(self.places, str(lane), "int64"), "a") for lane in lanes]
        shift = [""] * LANES
        if self.offsets:
            shift = [f" + {e.var(e.load(self.offsets, str(k), 'int64'), 'o')}" for k in lanes]
        moving = e.var("1", "m")
        with e.block(f"while {moving} != 0:"):
            e.line(f"{moving} = 0")
            for place, more in zip(at, shift, strict=True):
                node = e.let(self._node(place), "int64").expr
                e.line(f"{moving} = {moving} | ({node} & {self.looks})")
                value = e.load(self.slots, f"({node} & {self.looks}){more}", self.dtype)
                limit = e.load(
                    self.thresholds, f"{node} >> {self.rest}", self.limits, constant=True
                )
                e.line(f"{place} = {place} + (({node} >> {self.slot}) & {self.way})")
                e.line(f"{place} = {place} + int64(not {value} <= {limit})")
        for lane, place in enumerate(at):
            e.store(self.places, str(lane), f"{self._node(place)} >> {self.rest}", "int64")

    def _node(self, place: str) -> str:
        return f"int64({self.e.load(self.nodes, place, self.held_in, constant=True)})"

    def held(self, lane: str, tree: str) -> str:
        """The number of the tree's leaf at the end of a walk."""
        base = f"int64({self.e.load(self.leaves, tree, 'int32', constant=True)})"
        return f"{base} + {self.e.load(self.places, lane, 'int64')}"


def walks_of(
    e: Emitter, op: Nodes, packed: Packed, x: Column, lean: Lean | None, *, block: bool
) -> Walks:
    """The walks over these nodes."""
    if lean is None:
        return Walks(e, op, packed, x, block=block)
    return LeanWalks(e, op, packed, x, lean, block=block)
