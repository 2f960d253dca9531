"""Manifold learners that place new rows among the training points they are nearest to."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core.check import expect, fitted, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import FLOATS, INTS, Type, Vector, promote


class ShortestWay(Op):
    """The way to each column of a table by the best of some rows: their distance plus the table's.

    `places` picks rows of the table; a number outside it picks its nearest row.
    """

    table: Array
    arity = Arity.AGGREGATE

    def check(self) -> None:
        if self.table.array.ndim != 2 or not len(self.table):
            raise ParameterError("a table of ways has two dimensions and at least one row")
        if self.table.dtype.name not in FLOATS:
            raise ParameterError("ways are floats", found=str(self.table.dtype))

    def infer(self, places: Type, distances: Type) -> Vector:
        picked, lengths = vector(places, self.name), vector(distances, self.name)
        expect(picked.dtype in INTS, f"rows are picked by whole numbers, got {picked}")
        expect(is_float(lengths), f"distances are floats, got {lengths}", "call as_float() first")
        expect(lengths.width == picked.width, "there must be one distance for each picked row")
        expect(picked.width > 0, "there is no way without a neighbour")
        return Vector(self.table.shape[1], promote(lengths.dtype, self.table.dtype.name))

    def reference(self, places: Columns, distances: Columns) -> Columns:
        table: Any = self.table.array
        rows = table[np.clip(places, 0, len(table) - 1)]
        return (rows + distances[:, :, None]).min(axis=1)

    def emit(self, e: Emitter, places: VectorValue, distances: VectorValue) -> RowValue:
        table_dtype, dtype = self.table.dtype.name, promote(distances.dtype, self.table.dtype.name)
        outs, last = e.size(self.table.shape[1]), e.size(len(self.table) - 1)
        best, table = e.scratch(dtype, self.table.shape[1]), e.address(self.table)
        length_at = e.indexable(distances)

        def offer(j: str, v: str) -> None:
            row = e.let(f"min(max({v}, 0), {last}) * {outs}", "int64").expr
            start = e.let(e.cast(length_at(j), distances.dtype, dtype), dtype).expr
            with e.loop(outs) as o:
                rest = e.cast(
                    e.load(table, f"{row} + {o}", table_dtype, constant=True), table_dtype, dtype
                )
                length = e.let(f"{rest} + {start}", dtype).expr
                shortest = e.load(best, o, dtype)
                e.store(
                    best, o, f"({length} if {j} == 0 else minimum({shortest}, {length}))", dtype
                )

        places.each(offer)
        size = self.table.shape[1]
        return e.dense(dtype, size, lambda o: e.load(best, o, dtype), size=outs, stored=True)


class Barycentre(Op):
    """The weights with which some rows of `points` add up to x as nearly as they can.

    `places` picks the rows. The weights add up to one; `reg` times the sum of squared distances
    is added to the diagonal of the equations, so that there is always an answer.
    """

    points: Array
    reg: float
    arity = Arity.AGGREGATE
    bound = Bound.COMPUTE

    def check(self) -> None:
        if self.points.array.ndim != 2 or not len(self.points):
            raise ParameterError("points are a matrix with at least one row")

    def infer(self, x: Type, places: Type) -> Vector:
        kind, picked = vector(x, self.name), vector(places, self.name)
        fitted(self.points.shape[1], kind, self.name)
        expect(kind.dtype == "float64", f"barycentre computes in float64, got {kind}")
        expect(picked.dtype in INTS, f"rows are picked by whole numbers, got {picked}")
        return Vector(picked.width, "float64")

    def reference(self, x: Columns, places: Columns) -> Columns:
        points = self.points.array.astype(np.float64)
        differences = points[np.clip(places, 0, len(points) - 1)] - x[:, None, :]
        products = differences @ differences.transpose(0, 2, 1)
        trace = np.trace(products, axis1=1, axis2=2)
        ridge = np.where(trace > 0, self.reg * trace, self.reg)
        products += ridge[:, None, None] * np.eye(places.shape[1])
        weights = np.linalg.solve(products, np.ones((*places.shape, 1)))[:, :, 0]
        return weights / weights.sum(axis=1, keepdims=True)

    def emit(self, e: Emitter, x: VectorValue, places: VectorValue) -> RowValue:
        count, width = places.width, e.size(self.points.shape[1])
        row, picked = e.indexable(x), e.indexable(places)
        k, last = places.size, e.size(len(self.points) - 1)
        points = e.address(self.points, "float64")
        differences = e.scratch("float64", count * self.points.shape[1])
        with e.loop(k) as i:
            start = e.let(f"min(max({picked(i)}, 0), {last}) * {width}", "int64").expr
            with e.loop(width) as j:
                point = e.load(points, f"{start} + {j}", "float64", constant=True)
                e.store(differences, f"{i} * {width} + {j}", f"{point} - {row(j)}", "float64")
        matrix, weights = e.scratch("float64", count * count), e.scratch("float64", count)
        _products(e, differences, matrix, k, width)
        _ridge(e, matrix, k, e.number(self.reg, "float64"))
        _factor(e, matrix, k)
        total = _solve(e, matrix, weights, k)
        return e.dense(
            "float64", count, lambda j: f"({e.load(weights, j, 'float64')} / {total})", size=k
        )


def _products(e: Emitter, differences: str, matrix: str, k: str, width: str) -> None:
    """The dot products of all pairs (the lower half)."""
    with e.loop(k) as i, e.loop(f"{i} + 1") as j:
        total = e.var("0.0")
        with e.loop(width) as c:
            left, right = (e.load(differences, f"{r} * {width} + {c}", "float64") for r in (i, j))
            e.add(total, f"{left} * {right}")
        e.store(matrix, f"{i} * {k} + {j}", total, "float64")


def _ridge(e: Emitter, matrix: str, k: str, reg: str) -> None:
    trace = e.var("0.0")
    with e.loop(k) as i:
        e.line(f"{trace} = {trace} + {e.load(matrix, f'{i} * {k} + {i}', 'float64')}")
    ridge = e.let(f"({reg} * {trace} if {trace} > 0.0 else {reg})", "float64").expr
    with e.loop(k) as i:
        diagonal = f"{i} * {k} + {i}"
        e.store(matrix, diagonal, f"{e.load(matrix, diagonal, 'float64')} + {ridge}", "float64")


def _factor(e: Emitter, matrix: str, k: str) -> None:
    """Cholesky's factor, in place of the lower half."""
    with e.loop(k) as i, e.loop(f"{i} + 1") as j:
        index = f"{i} * {k} + {j}"
        total = e.var(e.load(matrix, index, "float64"))
        with e.loop(j) as c:
            left, right = (e.load(matrix, f"{r} * {k} + {c}", "float64") for r in (i, j))
            e.line(f"{total} = {total} - {left} * {right}")
        diagonal = e.load(matrix, f"{j} * {k} + {j}", "float64")
        e.store(
            matrix, index, f"(sqrt({total}) if {i} == {j} else {total} / {diagonal})", "float64"
        )


def _solve(e: Emitter, matrix: str, weights: str, k: str) -> str:
    """Solve for a right side of ones with the factor and its transpose; the sum of the answer."""
    with e.loop(k) as i:
        total = e.var("1.0")
        with e.loop(i) as j:
            term = (
                f"{e.load(matrix, f'{i} * {k} + {j}', 'float64')} * {e.load(weights, j, 'float64')}"
            )
            e.line(f"{total} = {total} - {term}")
        diagonal = e.load(matrix, f"{i} * {k} + {i}", "float64")
        e.store(weights, i, f"{total} / {diagonal}", "float64")
    whole = e.var("0.0")
    with e.loop(k) as down:
        i = e.let(f"{k} - 1 - {down}", "int64").expr
        total = e.var(e.load(weights, i, "float64"))
        with e.loop(k, f"{i} + 1") as j:
            term = (
                f"{e.load(matrix, f'{j} * {k} + {i}', 'float64')} * {e.load(weights, j, 'float64')}"
            )
            e.line(f"{total} = {total} - {term}")
        diagonal = e.load(matrix, f"{i} * {k} + {i}", "float64")
        e.store(weights, i, f"{total} / {diagonal}", "float64")
        e.line(f"{whole} = {whole} + {e.load(weights, i, 'float64')}")
    return whole
