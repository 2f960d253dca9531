"""Missing values estimated from the other columns: by the nearest rows, or rounds of regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, fitted, is_float, vector
from flour.core.emission import At, Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Array, Columns, Op
from flour.core.types import Type, Vector


class ImputeNearest(Op):
    """x, and where it is NaN the mean of that column over the nearest rows of a table.

    The distance of two rows is taken over the columns that both have, scaled up to all columns.
    Only rows that have the column are averaged, at most `count` of them, each with the weight one
    or (`closeness`) one over its distance; among rows equally far the first are taken. Where no row
    can be compared, the column's entry in `means` is used.
    """

    points: Array
    means: Array
    count: int
    closeness: bool = False

    def check(self) -> None:
        shape = self.points.shape
        if len(shape) != 2 or self.means.shape != shape[1:] or self.count < 1:
            raise ParameterError("impute_nearest needs rows of points, and a mean for each column")
        if {self.points.dtype.name, self.means.dtype.name} != {"float64"}:
            raise ParameterError("impute_nearest keeps its points in float64")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "impute_nearest")
        fitted(self.points.shape[1], kind, "impute_nearest")
        expect(is_float(kind), f"only floats can be NaN, got {kind}", "call as_float() first")
        return kind.having(sparse=False)

    # --- the definition ----------------------------------------------------------------------

    def reference(self, x: Columns) -> Columns:
        filled = x.copy()
        for row in np.flatnonzero(np.isnan(x).any(axis=1)):
            distances = self._distances(x[row].astype(np.float64))
            for j in np.flatnonzero(np.isnan(x[row])):
                filled[row, j] = self._value(distances, int(j))
        return filled

    def _distances(self, row: NDArray[Any]) -> NDArray[Any]:
        points: Any = self.points.array
        both = ~np.isnan(points) & ~np.isnan(row)
        differences = np.where(both, points - row, 0.0)
        counts = both.sum(axis=1)
        squares = (differences * differences).sum(axis=1) / np.maximum(counts, 1) * len(row)
        return np.where(counts == 0, np.nan, np.sqrt(squares))

    def _value(self, distances: NDArray[Any], j: int) -> Any:
        column: Any = self.points.array[:, j]
        usable = np.flatnonzero(~np.isnan(column) & ~np.isnan(distances))
        if not usable.size:
            return self.means.array[j]
        near = usable[np.argsort(distances[usable], kind="stable")[: self.count]]
        weights = np.ones(len(near))
        if self.closeness:
            nearest = distances[near]
            weights = (nearest == 0).astype(float) if (nearest == 0).any() else 1 / nearest
        return (weights * column[near]).sum() / weights.sum()

    # --- native code -------------------------------------------------------------------------

    def structure(self) -> tuple[object, ...]:
        return (self.closeness,)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        at, out = e.indexable(x), e.scratch(x.dtype, x.width)
        distances = e.scratch("float64", self.points.shape[0])
        missing = e.var("0")
        with e.loop(x.size) as j:
            value = e.let(at(j), x.dtype).expr
            e.store(out, j, value, x.dtype)
            with e.block(f"if {value} != {value}:"):
                e.line(f"{missing} += 1")
        with e.block(f"if {missing} > 0:"):
            rows = e.size(self.points.shape[0])
            self._measure(e, x, at, (distances, rows))
            with e.loop(x.size) as j:
                value = e.let(at(j), x.dtype).expr
                with e.block(f"if {value} != {value}:"):
                    mean = self._mean(e, x.size, j, (distances, rows))
                    e.store(out, j, e.cast(mean, "float64", x.dtype), x.dtype)
        return e.dense(
            x.dtype, x.width, lambda j: e.load(out, j, x.dtype), size=x.size, stored=True
        )

    def _measure(self, e: Emitter, x: VectorValue, at: At, table: tuple[str, str]) -> None:
        """Write the distance to every row of the table; NaN for one that cannot be compared."""
        distances, rows = table
        points = e.address(self.points)
        with e.loop(rows) as p:
            total, common = e.var("0.0"), e.var("0")
            with e.loop(x.size) as j:
                point = e.load(points, f"{p} * {x.size} + {j}", "float64", constant=True)
                difference = e.let(f"{point} - {e.cast(at(j), x.dtype, 'float64')}", "float64").expr
                with e.block(f"if {difference} == {difference}:"):
                    e.line(f"{total} = {total} + {difference} * {difference}")
                    e.line(f"{common} += 1")
            scaled = f"sqrt({total} / float64({common}) * float64({x.size}))"
            e.store(distances, p, f"{scaled} if {common} > 0 else float64(math.nan)", "float64")

    def _mean(self, e: Emitter, width: str, j: str, table: tuple[str, str]) -> str:
        """The weighted mean of column j over the nearest rows that have it."""
        distances, rows = table
        points, count = e.address(self.points), e.size(self.count)
        near, numbers = e.scratch("float64", self.count), e.scratch("int64", self.count)
        size = e.var("0")
        with e.loop(rows) as p:
            value = e.let(self._entry(e, points, p, width, j), "float64").expr
            distance = e.let(e.load(distances, p, "float64"), "float64").expr
            with e.block(f"if {value} == {value} and {distance} == {distance}:"):
                _insert(e, (near, numbers), (size, count), (distance, p))
        mean = e.var(e.at(self.means, j))
        with e.block(f"if {size} > 0:"):
            total, weights = e.var("0.0"), e.var("0.0")
            nearest = e.let(e.load(near, "0", "float64"), "float64").expr
            with e.loop(size) as i:
                weight = self._weight(e, e.load(near, i, "float64"), nearest)
                number = e.load(numbers, i, "int64")
                value = self._entry(e, points, number, width, j)
                e.line(f"{total} = {total} + {weight} * {value}")
                e.line(f"{weights} = {weights} + {weight}")
            e.line(f"{mean} = {total} / {weights}")
        return mean

    def _weight(self, e: Emitter, distance: str, nearest: str) -> str:
        if not self.closeness:
            return "1.0"
        distance = e.let(distance, "float64").expr
        same = f"(1.0 if {distance} == 0.0 else 0.0)"
        return e.let(f"{same} if {nearest} == 0.0 else 1.0 / {distance}", "float64").expr

    def _entry(self, e: Emitter, points: str, p: str, width: str, j: str) -> str:
        return e.load(points, f"({p}) * {width} + {j}", "float64", constant=True)


def _insert(
    e: Emitter, lists: tuple[str, str], size: tuple[str, str], item: tuple[str, str]
) -> None:
    """Emit the insertion of (distance, row) into two ascending lists of bounded size."""
    near, numbers = lists
    length, count = size
    distance, row = item
    full = f"{length} == {count}"
    with e.block(f"if not ({full} and {e.load(near, f'{count} - 1', 'float64')} <= {distance}):"):
        position = e.var(f"{count} - 1 if {full} else {length}")
        with e.block(f"if {length} < {count}:"):
            e.line(f"{length} += 1")
        with e.block(
            f"while {position} > 0 and {e.load(near, f'{position} - 1', 'float64')} > {distance}:"
        ):
            e.store(near, position, e.load(near, f"{position} - 1", "float64"), "float64")
            e.store(numbers, position, e.load(numbers, f"{position} - 1", "int64"), "int64")
            e.line(f"{position} = {position} - 1")
        e.store(near, position, distance, "float64")
        e.store(numbers, position, row, "int64")


class ImputeInTurn(Op):
    """`filled`, its columns recomputed in turn from all others wherever x is NaN.

    Step s writes column targets[s] as the row's product with weights[s] plus biases[s], limited
    to the column's [low, high]. A row without any value is left as it was filled.
    """

    targets: Array
    weights: Array
    biases: Array
    low: Array
    high: Array

    def check(self) -> None:
        steps, width = self.biases.array.size, self.low.array.size
        shapes = [item.shape for item in (self.targets, self.weights, self.biases, self.high)]
        if shapes != [(steps,), (steps, width), (steps,), (width,)] or self.low.shape != (width,):
            raise ParameterError("impute_in_turn needs a target, weights and a bias for each step")
        rest = (self.weights, self.biases, self.low, self.high)
        targets: Any = self.targets.array
        if targets.dtype != np.int64 or any(item.dtype != np.float64 for item in rest):
            raise ParameterError("impute_in_turn computes in float64, its targets are int64")
        if np.any((targets < 0) | (targets >= width)):
            raise ParameterError(f"a step writes a column that {width} columns do not have")

    def infer(self, x: Type, filled: Type) -> Vector:
        kinds = [vector(kind, "impute_in_turn") for kind in (x, filled)]
        for kind in kinds:
            fitted(len(self.low), kind, "impute_in_turn")
            expect(is_float(kind), f"only floats can be NaN, got {kind}", "call as_float() first")
        return kinds[1].having(sparse=False)

    def reference(self, x: Columns, filled: Columns) -> Columns:
        result, missing = filled.copy(), np.isnan(x)
        missing[missing.all(axis=1)] = False
        low: Any = self.low.array
        high: Any = self.high.array
        steps = zip(self.targets.array, self.weights.array, self.biases.array, strict=True)
        for target, weights, bias in steps:
            rows = missing[:, target]
            value = result[rows].astype(np.float64) @ weights + bias
            result[rows, target] = np.clip(value, low[target], high[target])
        return result

    def emit(self, e: Emitter, x: VectorValue, filled: VectorValue) -> RowValue:
        at, dtype = e.indexable(x), filled.dtype
        out, present = e.scratch(dtype, filled.width), e.var("0")
        first = e.indexable(filled)
        with e.loop(x.size) as j:
            value = e.let(at(j), x.dtype).expr
            with e.block(f"if {value} == {value}:"):
                e.line(f"{present} += 1")
            e.store(out, j, first(j), dtype)
        with e.block(f"if {present} > 0:"), e.loop(e.size(len(self.biases))) as s:
            self._step(e, s, (at, x.dtype), (out, dtype, x.size))
        return e.dense(
            dtype, filled.width, lambda j: e.load(out, j, dtype), size=x.size, stored=True
        )

    def _step(self, e: Emitter, s: str, x: tuple[At, str], out: tuple[str, str, str]) -> None:
        base, dtype, width = out
        target = e.let(e.at(self.targets, s), "int64").expr
        old = e.let(x[0](target), x[1]).expr
        with e.block(f"if {old} != {old}:"):
            total, weights = e.var("0.0"), e.address(self.weights)
            with e.loop(width) as j:
                value = e.cast(e.load(base, j, dtype), dtype, "float64")
                weight = e.load(weights, f"{s} * {width} + {j}", "float64", constant=True)
                e.add(total, f"{value} * {weight}")
            e.line(f"{total} = {total} + {e.at(self.biases, s)}")
            limited = f"clip({total}, {e.at(self.low, target)}, {e.at(self.high, target)})"
            e.store(base, target, e.cast(limited, "float64", dtype), dtype)
