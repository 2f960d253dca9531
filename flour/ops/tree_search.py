"""The nearest points as scikit-learn's search trees find them, with its choice among equals.

Points at the same distance compete for the last place, and who keeps it depends on the order in
which points are looked at and on the heap that keeps the nearest ones. Both are done here as the
library does them: subtrees by their least possible distance, the nearer one first; the points of a
leaf in the tree's order; and `push` as its heap of bounded size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, fitted, vector
from flour.core.emission import At, Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import FLOATS, Type, Vector
from flour.ops.metrics import METRICS, Pair, Sums

#: Metrics whose sums are what a tree compares, and how a distance becomes such a sum again.
REDUCED = {
    "euclidean": "{d} * {d}",
    "manhattan": "{d}",
    "chebyshev": "{d}",
    "minkowski": "{d} ** {p}",
    "canberra": "{d}",
    "hamming": "{d}",
    "braycurtis": "{d}",
}
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
        kind = vector(x, self.name)
        fitted(self.points.shape[1], kind, self.name)
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
                    push(near, places, value, number)
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
        sums = (np.zeros(len(points)),) * metric.sums
        for j, value in enumerate(row):
            sums = metric.step(sums, Pair(value, points[:, j], 1.0, self.p))
        quotient = self.metric in _QUOTIENTS
        return metric.finish(Sums(sums, len(row), self.p)) if quotient else sums[0]

    def _finished(self, sums: NDArray[Any], width: int) -> Any:
        """Distances, from what trees compare."""
        if self.metric in _QUOTIENTS:
            return sums
        return METRICS[self.metric].finish(Sums((sums,), width, self.p))

    def _least(self, row: NDArray[Any]) -> Any:
        """The least sum that a point of each node can have."""
        bounds, width = self.bounds.array, len(row)
        if not self.ball:
            below, above = bounds[:, :width] - row, row - bounds[:, width:]
            return self._sums(np.maximum(below, 0.0) + np.maximum(above, 0.0), np.zeros(width))
        centre = self._finished(self._sums(bounds[:, :width], row), width)
        apart = np.maximum(centre - bounds[:, width], 0.0)
        powers = {"euclidean": apart * apart, "minkowski": apart**self.p}
        return powers.get(self.metric, apart)

    # --- native code -------------------------------------------------------------------------

    def structure(self) -> tuple[object, ...]:
        return (self.metric, self.ball)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        at, count, p = e.indexable(x), e.size(self.count), e.number(self.p, "float64")
        near, places = e.scratch("float64", self.count), e.scratch("int64", self.count)
        depth = self.bounds.shape[0].bit_length() + 2
        stack, limits = e.scratch("int64", depth), e.scratch("float64", depth)
        row = (lambda j: e.cast(at(j), x.dtype, "float64")), x.size, p
        with e.loop(count) as k:
            e.store(near, k, "math.inf", "float64")
            e.store(places, k, "0", "int64")
        top, nodes = e.var("1"), e.address(self._nodes())
        e.store(stack, "0", "0", "int64")
        e.store(limits, "0", "0.0", "float64")  # the root is looked at whatever its bounds say
        with e.block(f"while {top} > 0:"):
            e.line(f"{top} = {top} - 1")
            node = e.let(e.load(stack, top, "int64"), "int64").expr
            with e.block(f"if {e.load(limits, top, 'float64')} <= {e.load(near, '0', 'float64')}:"):
                leaf = e.load(nodes, f"{node} * 3 + 2", "int64", constant=True)
                with e.block(f"if {leaf} != 0:"):
                    self._leaf(e, node, row, (near, places, count))
                with e.block("else:"):
                    self._inner(e, node, row, (stack, limits, top))
        emit_sorted(e, near, places, count)
        return self._found(e, near, places, (count, p))

    def _leaf(
        self, e: Emitter, node: str, row: tuple[At, str, str], heap: tuple[str, str, str]
    ) -> None:
        nodes, points = e.address(self._nodes()), e.address(self.points, "float64")
        numbers = e.address(self.numbers, "int64")
        end = e.let(e.load(nodes, f"{node} * 3 + 1", "int64", constant=True), "int64").expr
        start = e.let(e.load(nodes, f"{node} * 3", "int64", constant=True), "int64").expr
        with e.loop(end, start) as i:
            total = self._total(
                e, row, lambda j: e.load(points, f"{i} * {row[1]} + {j}", "float64", constant=True)
            )
            number = e.load(numbers, i, "int64", constant=True)
            emit_push(e, heap, total, number)

    def _inner(
        self, e: Emitter, node: str, row: tuple[At, str, str], stack: tuple[str, str, str]
    ) -> None:
        """Put both children on the stack, the nearer one on top."""
        nodes, limits, top = stack
        first = e.let(f"2 * {node} + 1", "int64").expr
        left, right = (self._bound(e, f"({first} + {k})", row) for k in (0, 1))
        swap = e.let(f"1 if {left} <= {right} else 0", "int64").expr
        for k, side in enumerate((f"{swap}", f"(1 - {swap})")):
            e.store(nodes, f"{top} + {k}", f"{first} + {side}", "int64")
            bound = f"({right} if {side} != 0 else {left})"
            e.store(limits, f"{top} + {k}", bound, "float64")
        e.line(f"{top} = {top} + 2")

    def _bound(self, e: Emitter, node: str, row: tuple[At, str, str]) -> str:
        """The least sum that a point of the node can have."""
        bounds, (at, width, p) = e.address(self.bounds, "float64"), row
        start = e.let(
            f"{node} * ({width} + 1)" if self.ball else f"{node} * 2 * {width}", "int64"
        ).expr

        def side(j: str) -> str:
            return e.load(bounds, f"{start} + {j}", "float64", constant=True)

        if not self.ball:

            def gap(j: str) -> str:
                value = e.let(at(j), "float64").expr
                above = f"maximum({value} - {side(f'{width} + {j}')}, 0.0)"
                return f"maximum({side(j)} - {value}, 0.0) + {above}"

            return self._total(e, (gap, width, p), lambda _: "0.0")
        total = self._total(e, row, side)
        distance = self._distance(total, width, p)
        apart = e.let(f"maximum({distance} - {side(width)}, 0.0)", "float64").expr
        return e.let(REDUCED[self.metric].format(d=apart, p=p), "float64").expr

    def _total(self, e: Emitter, row: tuple[At, str, str], other: At) -> str:
        """What the metric sums up over columns."""
        at, width, p = row
        metric = METRICS[self.metric]
        totals = [e.var("0.0") for _ in range(metric.sums)]
        with e.loop(width) as j:
            x, y = (e.let(side(j), "float64").expr for side in (at, other))
            for total, term in zip(totals, metric.terms(Pair(x, y, "1.0", p)), strict=True):
                joined = f"maximum({total}, {term})" if metric.largest else f"{total} + {term}"
                e.line(f"{total} = {joined}")
        if self.metric not in _QUOTIENTS:
            return totals[0]
        return e.let(metric.code(Sums(tuple(totals), width, p)), "float64").expr

    def _distance(self, total: str, width: str, p: str) -> str:
        """The distance, from what trees compare."""
        if self.metric in _QUOTIENTS:
            return total
        return METRICS[self.metric].code(Sums((total,), width, p))

    def _found(self, e: Emitter, near: str, places: str, sizes: tuple[str, str]) -> RowValue:
        count, p = sizes
        out = e.scratch("float64", 2 * self.count)
        with e.loop(count) as k:
            e.store(out, k, f"float64({e.load(places, k, 'int64')})", "float64")
            distance = self._distance(e.load(near, k, "float64"), count, p)
            e.store(out, f"{count} + {k}", distance, "float64")
        width = 2 * self.count
        return e.dense("float64", width, lambda j: e.load(out, j, "float64"), stored=True)


def tree_nodes(points: int, count: int) -> NDArray[np.int64]:
    """The ranges of points of each node, and whether it is a leaf, of a tree of `count` nodes."""
    nodes = np.array([[0, points, 1]] * count, np.int64)
    for i in range((count - 1) // 2):
        start, end, _ = nodes[i]
        nodes[i, 2], middle = 0, start + (end - start) // 2
        nodes[2 * i + 1, :2], nodes[2 * i + 2, :2] = (start, middle), (middle, end)
    return nodes


# --- the heap that keeps the nearest --------------------------------------------------------------


def push(near: list[Any], places: list[Any], value: Any, number: Any) -> None:
    """Put a point in the place of the farthest one, if it is nearer; the farthest comes first."""
    if not value < near[0]:
        return
    at, child, size = 0, 1, len(near)
    while child < size:
        if child + 1 < size and near[child + 1] > near[child]:
            child += 1
        if not value < near[child]:
            break
        near[at], places[at] = near[child], places[child]
        at, child = child, 2 * child + 1
    near[at], places[at] = value, number


def emit_push(e: Emitter, heap: tuple[str, str, str], value: str, number: str) -> None:
    """The same as native code."""
    near, places, count = heap
    with e.block(f"if {value} < {e.load(near, '0', 'float64')}:"):
        at, child = e.var("0"), e.var("1")
        with e.block(f"while {child} < {count}:"):
            left = e.var(e.load(near, child, "float64"))
            with e.block(f"if {child} + 1 < {count}:"):
                right = e.let(e.load(near, f"{child} + 1", "float64"), "float64").expr
                with e.block(f"if {right} > {left}:"):
                    e.line(f"{left} = {right}")
                    e.line(f"{child} = {child} + 1")
            with e.block(f"if not ({value} < {left}):"):
                e.line("break")
            e.store(near, at, left, "float64")
            e.store(places, at, e.load(places, child, "int64"), "int64")
            e.line(f"{at} = {child}")
            e.line(f"{child} = 2 * {child} + 1")
        e.store(near, at, value, "float64")
        e.store(places, at, number, "int64")


def emit_sorted(e: Emitter, near: str, places: str, count: str) -> None:
    """Sort both by the first, ascending; equal ones keep their order."""
    with e.loop(count, "1") as k:
        value = e.let(e.load(near, k, "float64"), "float64").expr
        number = e.let(e.load(places, k, "int64"), "int64").expr
        at = e.var(k)
        with e.block(f"while {at} > 0:"):
            left = e.let(e.load(near, f"{at} - 1", "float64"), "float64").expr
            with e.block(f"if not ({left} > {value}):"):
                e.line("break")
            e.store(near, at, left, "float64")
            e.store(places, at, e.load(places, f"{at} - 1", "int64"), "int64")
            e.line(f"{at} = {at} - 1")
        e.store(near, at, value, "float64")
        e.store(places, at, number, "int64")
