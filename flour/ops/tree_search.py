"""The nearest points as scikit-learn's search trees find them, with its choice among equals.

Points at the same distance compete for the last place, and who keeps it depends on the order in
which points are looked at and on the heap that keeps the nearest ones. Both are done here as the
library does them: subtrees by their least possible distance, the nearer one first; the points of a
leaf in the tree's order; and `push` as its heap of bounded size.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy import maximum
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, held, write
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import FLOATS, Type, Vector
from flour.core.words import Number, Numbers, Row, cast, indexable, number, registers, scratch, size
from flour.core.words import fitted as fitted_numbers
from flour.ops.distance import METRICS, ColumnPair, Metric, MetricSums

#: Metrics whose sums are what a tree compares.
REDUCED = (
    *("euclidean", "manhattan", "chebyshev", "minkowski"),
    *("canberra", "hamming", "braycurtis"),
)
#: Those that trees of boxes do not bound.
BALLS_ONLY = frozenset({"canberra", "hamming", "braycurtis"})
#: Trees compare distances by these, which are more than a sum.
_QUOTIENTS = frozenset({"hamming", "braycurtis"})


class TreeNearest(Op):
    """The numbers of the `count` nearest points, ascending, and behind them their distances.

    `points` are in the order of the leaves, `numbers` says which each of them is. A node has half
    of the points of its parent, the children of node i are 2 i + 1 and 2 i + 2. Its row of `bounds`
    has the least and the largest value of each column, or (`ball`) a centre and a radius. A place
    for which no point has a finite distance gets the number 0.
    """

    points: Array
    numbers: Array
    bounds: Array
    count: int
    metric: str
    p: float = 2.0
    ball: bool = False
    method = ""  # trees are built by scikit-learn
    cuts = True
    arity = Arity.ONE_TO_MANY
    bound = Bound.COMPUTE

    def check(self) -> None:
        rows, width = self.points.shape
        if self.metric not in REDUCED:
            raise ParameterError(f"trees do not measure {self.metric!r}", hint=", ".join(REDUCED))
        if self.metric in BALLS_ONLY and not self.ball:
            raise ParameterError(f"trees of boxes do not measure {self.metric!r}")
        sides = width + 1 if self.ball else 2 * width
        nodes = self.bounds.shape[0]
        if self.numbers.shape != (rows,) or self.bounds.shape[1:] != (sides,):
            raise ParameterError("a tree has a number for each point, and bounds for each node")
        if not 1 <= self.count <= rows or not 1 <= nodes <= 2 * rows or nodes & (nodes + 1):
            raise ParameterError(
                "a tree has all nodes of its levels, and as many points as it is asked for",
                found=f"{nodes} nodes, {rows} points, {self.count} asked for",
            )

    def _nodes(self) -> Array:
        """The first point of each node, the first behind them, and whether it is a leaf."""
        return Array.of(tree_nodes(self.points.shape[0], self.bounds.shape[0]))

    def infer(self, x: Type) -> Vector:
        kind = vector(x, self.name, self.points.shape[1])
        expect(kind.dtype in FLOATS, f"{self.name} needs floats, got {kind}", "call as_float()")
        return Vector(2 * self.count, "float64")

    # --- the definition ----------------------------------------------------------------------

    def reference(self, x: Columns) -> Columns:
        found = np.empty((len(x), 2 * self.count))
        for row, out in zip(x.astype(np.float64), found, strict=True):
            out[:] = self._search(row)
        return found

    def _search(self, row: NDArray[Any]) -> NDArray[Any]:
        nodes, points, numbers = self._nodes().array, self.points.array, self.numbers.array
        least = self._least(row)
        near, places, stack = [np.inf] * self.count, [0] * self.count, [0]
        while stack:
            node = stack.pop()
            if node and not least[node] <= near[0]:
                continue
            start, end, leaf = nodes[node]
            if leaf:
                for value, number in zip(
                    self._sums(points[start:end], row), numbers[start:end], strict=True
                ):
                    push(near, places, self.count, value, number)
            else:
                first = 2 * node + 1
                nearer = first if least[first] <= least[first + 1] else first + 1
                stack += [2 * first + 1 - nearer, nearer]
        order = np.argsort(near, kind="stable")
        distances = self._finished(np.array(near), len(row))
        return np.append(np.array(places)[order], distances[order])

    def _sums(self, points: NDArray[Any], row: NDArray[Any]) -> Any:
        """Return the sums of the metric over columns for each point, as trees compare them."""
        metric = METRICS[self.metric]
        sums = [np.zeros(len(points)) for _ in metric.sums]
        for j, value in enumerate(row):
            sums = metric.added(sums, ColumnPair(value, points[:, j], 1.0, self.p))
        quotient = self.metric in _QUOTIENTS
        return metric.finish(MetricSums(sums, len(row), self.p)) if quotient else sums[0]

    def _finished(self, sums: NDArray[Any], width: int) -> Any:
        """Distances, from what trees compare."""
        if self.metric in _QUOTIENTS:
            return sums
        return METRICS[self.metric].finish(MetricSums((sums,), width, self.p))

    def _least(self, row: NDArray[Any]) -> Any:
        """The least sum that a point of each node can have."""
        bounds, width = self.bounds.array, len(row)
        if not self.ball:
            below, above = bounds[:, :width] - row, row - bounds[:, width:]
            return self._sums(np.maximum(below, 0.0) + np.maximum(above, 0.0), np.zeros(width))
        centre = self._finished(self._sums(bounds[:, :width], row), width)
        return reduced(np.maximum(centre - bounds[:, width], 0.0), self.metric, self.p)

    # --- native code -------------------------------------------------------------------------

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        metric, quotient = METRICS[self.metric], self.metric in _QUOTIENTS
        tree = Tree(
            FittedNumbers(self._nodes(), "int64"),
            FittedNumbers(self.points, "float64"),
            FittedNumbers(self.numbers, "int64"),
            FittedNumbers(self.bounds, "float64"),
            Measure(self.metric, metric, quotient=quotient, ball=self.ball),
        )
        depth = self.bounds.shape[0].bit_length() + 2
        return held(e, write(e, search, x, tree, self.count, depth, self.p), 2 * self.count)


class Measure(NamedTuple):
    """A tree's measure: the metric's sums, or (`quotient`) the distance they amount to."""

    name: str
    metric: Metric
    quotient: bool
    ball: bool


class Tree(NamedTuple):
    """A tree's nodes, points, numbers of points and bounds, and its measure."""

    nodes: Numbers
    points: Numbers
    numbers: Numbers
    bounds: Numbers
    measure: Measure


def search(x: Row, tree: Tree, count: int, depth: int, p: float) -> Numbers:
    """The numbers of the nearest points, and behind them their distances."""
    columns, kept, power = indexable(x), size(count), number(p, "float64")
    near, places = scratch("float64", count), scratch("int64", count)
    stack, limits = scratch("int64", depth), scratch("float64", depth)
    row = [cast(columns[j], "float64") for j in range(len(x))]
    for k in range(kept):
        near[k] = math.inf
        places[k] = 0
    top, nodes = 1, fitted_numbers(tree.nodes)
    stack[0] = 0
    limits[0] = 0.0  # the root is looked at whatever its bounds say
    while top > 0:
        top = top - 1
        node = stack[top]
        if limits[top] <= near[0]:
            if nodes[node * 3 + 2] != 0:
                end, start = nodes[node * 3 + 1], nodes[node * 3]
                points, numbers = fitted_numbers(tree.points), fitted_numbers(tree.numbers)
                for i in range(start, end):
                    point = [points[i * len(x) + j] for j in range(len(x))]
                    total = compared(row, point, tree.measure, power)
                    push(near, places, kept, total, numbers[i])
            else:  # both children on the stack, the nearer one on top
                first = 2 * node + 1
                left = least(row, first, tree, power)
                right = least(row, first + 1, tree, power)
                swap = 1 if left <= right else 0
                stack[top] = first + swap
                limits[top] = right if swap != 0 else left
                stack[top + 1] = first + (1 - swap)
                limits[top + 1] = right if (1 - swap) != 0 else left
                top = top + 2
    arrange(near, places, kept)
    found = scratch("float64", 2 * count)
    for k in range(kept):
        found[k] = cast(places[k], "float64")
        found[kept + k] = finished(near[k], len(x), tree.measure, power)
    return found


def least(row: Row, node: int, tree: Tree, p: Number) -> Number:
    """The least that a point of a node can be from the row, as trees compare it."""
    bounds = fitted_numbers(tree.bounds)
    if tree.measure.ball:
        start = node * (len(row) + 1)
        centre = [bounds[start + j] for j in range(len(row))]
        total = compared(row, centre, tree.measure, p)
        distance = finished(total, len(row), tree.measure, p)
        return reduced(maximum(distance - bounds[start + len(row)], 0.0), tree.measure.name, p)
    start = node * 2 * len(row)
    gaps = [gap(row[j], bounds[start + j], bounds[start + len(row) + j]) for j in range(len(row))]
    return compared(gaps, [0.0 for _ in range(len(row))], tree.measure, p)


def gap(x: Number, low: Number, high: Number) -> Number:
    """The distance of a number from an interval."""
    return maximum(low - x, 0.0) + maximum(x - high, 0.0)


def compared(row: Row, other: Row, measure: Measure, p: Number) -> Number:
    """The quantity that trees compare: sums of the metric over columns, or what they amount to."""
    metric, totals = measure.metric, registers("float64", len(measure.metric.sums))
    for j in range(len(row)):
        x, y = row[j], other[j]
        terms = metric.terms(ColumnPair(x, y, 1.0, p))
        for k, term in zip(metric.sums, terms, strict=True):
            totals[k] = metric.join(totals[k], term)
    return metric.finish(MetricSums(totals, len(row), p)) if measure.quotient else totals[0]


def finished(total: Number, columns: int, measure: Measure, p: Number) -> Number:
    """The distance, from what trees compare."""
    return total if measure.quotient else measure.metric.finish(MetricSums([total], columns, p))


def reduced(distance: Number, metric: str, p: Number) -> Number:
    """The quantity that trees compare, from the distance."""
    if metric == "euclidean":
        return distance * distance
    return distance**p if metric == "minkowski" else distance


def tree_nodes(points: int, count: int) -> NDArray[np.int64]:
    """The ranges of points of each node, and whether it is a leaf, of a tree of `count` nodes."""
    nodes = np.array([[0, points, 1]] * count, np.int64)
    for i in range((count - 1) // 2):
        start, end, _ = nodes[i]
        nodes[i, 2], middle = 0, start + (end - start) // 2
        nodes[2 * i + 1, :2], nodes[2 * i + 2, :2] = (start, middle), (middle, end)
    return nodes


# --- the heap that keeps the nearest --------------------------------------------------------------


def push(near: Numbers, places: Numbers, count: int, value: Number, number: Number) -> None:
    """Put a point in the place of the farthest one, if it is nearer; the farthest comes first."""
    if value < near[0]:
        at, child = 0, 1
        while child < count:
            further = near[child]
            if child + 1 < count:
                right = near[child + 1]
                if right > further:
                    further = right
                    child = child + 1
            if not (value < further):
                break
            near[at] = further
            places[at] = places[child]
            at = child
            child = 2 * child + 1
        near[at] = value
        places[at] = number


def arrange(near: Numbers, places: Numbers, count: int) -> None:
    """Sort both by the first, ascending; equal ones keep their order."""
    for k in range(1, count):
        value, number = near[k], places[k]
        at = k
        while at > 0:
            left = near[at - 1]
            if not (left > value):
                break
            near[at] = left
            places[at] = places[at - 1]
            at = at - 1
        near[at] = value
        places[at] = number
