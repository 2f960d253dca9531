"""trees(the bin each x is in)  →  trees whose thresholds are edges of the bins

Why      a bin is the number of edges that a number has reached, so a test of it is a test of the
         number against one edge: the bins are never computed. NaN has reached every edge, and goes
         where the last bin goes.
Unless   another operator reads the bins; a node passes bins that are not a run from the first on (a
         set of categories, zeros taken for missing); no number or every number passes and no
         threshold expresses that; or another column is rounded to float32 and tested by a set.
Numerics none: bins are defined by x < edge, and the tests of the bins' numbers are evaluated at
         baking, by the definition of the nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node, node
from flour.core.types import Vector
from flour.ops.bases import Elementwise
from flour.ops.binary import CastLike
from flour.ops.discretise import Bins
from flour.ops.elementwise import Cast, Clip, WithParameter
from flour.ops.trees.walk import LEFT, RIGHT, Walk, raw
from objectstore import Blob
from oven.optimise.affine import dtype_of, is_float
from oven.optimise.concat_chain import ChainPart, joined, parts, seams
from oven.optimise.into_trees import chain, sent_left
from oven.optimise.pattern import BITS, Match, Rule, hole, op
from oven.optimise.thresholds import Flags, Floats, after, last_passing

Indices = NDArray[np.int64]
Limits = NDArray[np.float64]


class Binned(NamedTuple):
    """A part of the input: the bins, the steps after them, and all nodes in between."""

    bins: Bins
    steps: tuple[Elementwise, ...]
    chain: tuple[Node, ...]

    @property
    def below(self) -> Node:
        """The numbers that are put into bins."""
        return self.chain[-1].inputs[0]

    def seen(self, column: int) -> Floats:
        """The trees' input for each bin of a column, from the first to the last."""
        cuts = self.bins.starts.array
        x = np.arange(int(cuts[column + 1] - cuts[column]) + 1)
        with np.errstate(all="ignore"):
            for step in self.steps:
                where = np.full(len(x), column)
                x = np.asarray(step.on_columns(where).reference(x))
        return x

    def edges(self, column: int) -> Limits:
        """The edges between the bins of a column."""
        cuts = self.bins.starts.array
        edges: Limits = self.bins.edges.array[cuts[column] : cuts[column + 1]].astype(np.float64)
        return edges


def _binned(m: Match, part: ChainPart) -> Binned | None:
    """The bins that a part comes from, if only trees read it."""
    nodes = chain(m, part, Bins, lambda item: _step(item) is not None)
    kinds = [item.type for item in nodes]
    if not kinds or not all(isinstance(kind, Vector) and not kind.sparse for kind in kinds):
        return None
    bins = nodes[-1].op
    assert isinstance(bins, Bins), "the chain ends with them"
    if not is_float(nodes[-1].inputs[0].type) or np.any(np.isnan(bins.edges.array)):
        return None
    steps = [_step(item) for item in reversed(nodes[:-1])]
    return Binned(bins, tuple(step for step in steps if step is not None), tuple(nodes))


def _step(item: Node) -> Elementwise | None:
    """The step of a node, if its reference and native code agree to the last bit."""
    if isinstance(item.op, CastLike):
        return Cast(dtype_of(item))
    return item.op if isinstance(item.op, Cast | WithParameter | Clip) else None


class _BinnedTrees:
    """The fields of the trees that the rule changes."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        # Referenced here, so that they stay whole: `passes` reads them column by column.
        self.kept = raw(walk.threshold, walk.missing, walk.category, walk.words)
        self.feature = walk.feature.array.astype(np.int64)
        self.threshold = walk.threshold.array.astype(np.float64)
        self.missing = walk.missing.array.copy()
        self.category = walk.category.array.copy()
        self.pulled = np.zeros(len(self.feature), bool)

    def pull(self, part: ChainPart, binned: Binned) -> bool:
        """Test x instead of bins; False if a node of the part cannot."""
        for column in range(part.width):
            nodes = np.flatnonzero(self.feature == part.start + column)
            if nodes.size and not self._pull_column(nodes, binned, column):
                return False
        return True

    def _pull_column(self, nodes: Indices, binned: Binned, column: int) -> bool:
        left = sent_left(self.walk, binned.seen(column), nodes)
        count = left.sum(axis=1)
        if np.any(left != (np.arange(left.shape[1]) < count[:, None])):
            return False
        edges, strict = binned.edges(column), self.walk.strict
        # After the last bin comes an edge that no number reaches, before the first one that all do.
        limit = np.concatenate([[-np.inf], edges, [np.inf]])[count]
        beyond = np.isinf(limit) & (count == (len(edges) + 1 if strict else 0))
        if np.any(beyond) or (not strict and np.any((limit == -np.inf) & (count > 0))):
            return False
        every = count == len(edges) + 1
        below = limit if strict else np.where(every, limit, np.nextafter(limit, -np.inf))
        self.threshold[nodes] = below
        self.missing[nodes] = np.where(left[:, -1], LEFT, RIGHT)
        if len(self.category):
            self.category[nodes] = -1
        self.pulled[nodes] = True
        return True

    def widen(self) -> bool:
        """Include the rounding to float32 in the other thresholds: edges must not be rounded."""
        rest = np.flatnonzero(~self.pulled & (self.feature >= 0))
        if not (self.walk.narrow and rest.size):
            return True
        sets = len(self.category) and bool(np.any(self.category[rest].astype(np.int64) >= 0))
        limits, strict = self.threshold[rest], self.walk.strict
        if sets or self.walk.zeros or np.any(np.isnan(limits)):
            return False

        def below(x: Floats) -> Flags:
            with np.errstate(over="ignore"):
                value = x.astype(np.float32)
            return value < limits if strict else value <= limits

        last = last_passing(below, len(rest), "float64")
        if last is None or (strict and np.any(np.isinf(last))):
            return False
        self.threshold[rest] = after(last) if strict else last
        return True

    def trees(self) -> Walk:
        """The trees with these tables."""
        changed = self.walk.replace(
            threshold=Blob.of(self.threshold), missing=Blob.of(self.missing), narrow=False
        )
        return changed.replace(category=Blob.of(self.category)) if len(self.category) else changed


def _build(m: Match) -> Node | None:
    kind, tables = m["x"].type, _BinnedTrees(m.op("trees", Walk))
    if not isinstance(kind, Vector) or kind.sparse:
        return None
    items: list[Node] = []
    gone: list[Node] = []
    for part in parts(m, m["x"]):
        binned = _binned(m, part)
        items.append(part.item if binned is None else binned.below)
        if binned is not None:
            gone.extend(binned.chain)
            if not tables.pull(part, binned):
                return None
    if not gone or not tables.widen():
        return None
    m.take(*gone, *seams(m, m["x"]))
    return node(tables.trees(), [joined(items, m["x"])])


RULE = Rule(op(Walk, name="trees")(hole("x")), _build, BITS, beside=(Bins,))
