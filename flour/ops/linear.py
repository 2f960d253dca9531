"""Dot products with fitted weights: predictors, projections, every layer of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import fitted, vector
from flour.core.emission import Column, Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import ANYTHING, FLOATS, Extent, Type, Vector, extent_of, promote
from flour.language.flow import Flow
from flour.ops.product import multiply, product
from flour.ops.reduce import zero

#: Up to this many outputs of a sparse row are summed in a register each.
_FEW = 4


class Linear(Op):
    """x @ weights.T + bias: one output per row of `weights`, in numpy's promoted dtype.

    An empty bias adds nothing.
    """

    weights: Array
    bias: Array
    arity = Arity.AGGREGATE
    bound = Bound.COMPUTE
    takes_sparse = True

    def check(self) -> None:
        shape, bias = self.weights.shape, self.bias.shape
        if len(shape) != 2 or bias not in ((0,), (shape[0],)):
            raise ParameterError(
                "linear needs weights (outputs, columns) and one bias per output",
                found=f"weights {shape}, bias {bias}",
            )

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        (x,) = inputs
        if not x.finite:
            return ANYTHING
        # Sums in float32 are taken to be of numbers up to 1e30: docs/15-scikit-learn.md says so.
        narrow = self._dtype(vector(kinds[0], "linear").dtype) == "float32"
        weights, bias = (np.abs(part.array.astype("f8")) for part in (self.weights, self.bias))
        largest = min(x.largest, 1e30) if narrow else x.largest
        with np.errstate(over="ignore"):
            return extent_of(weights.sum(axis=1) * largest + bias.sum())

    def infer(self, x: Vector) -> Vector:
        kind = vector(x, "linear")
        fitted(self.weights.shape[1], kind, "linear")
        return Vector(self.weights.shape[0], self._dtype(kind.dtype))

    def _dtype(self, dtype: str) -> str:
        bias = [self.bias.dtype.str] if len(self.bias) else []
        return promote(dtype, self.weights.dtype.str, *bias)

    def reference(self, x: Columns) -> Columns:
        weights = self.weights.array.T
        product = x.matmul(weights) if isinstance(x, Sparse) else x @ weights
        return product + self.bias.array if len(self.bias) else product

    def pull(self, weights: NDArray[np.float64], *inputs: Type) -> list[NDArray[np.float64]]:
        return [weights @ self.weights.array.astype(np.float64)]

    def structure(self) -> tuple[object, ...]:
        outs = self.weights.shape[0]
        return (outs if outs <= _FEW else 0, len(self.bias) > 0)

    def wants_kernel(self, *inputs: Type) -> bool:
        (x,) = inputs
        return isinstance(x, Vector) and not x.sparse and self.weights.shape[0] > 1

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        outs = self.weights.shape[0]
        return self._one(e, x) if outs == 1 else (self._few if outs <= _FEW else self._many)(e, x)

    def _one(self, e: Emitter, x: VectorValue) -> RowValue:
        """One output: a running sum in a register."""
        dtype = self._dtype(x.dtype)
        total = e.var(zero(dtype))

        def add(j: str, v: str) -> None:
            value, weight = e.cast(v, x.dtype, dtype), e.at(self.weights, j, dtype)
            _add_product(e, total, value, weight, dtype)

        x.each(add)
        return self._ended(e, [total], dtype)

    def _few(self, e: Emitter, x: VectorValue) -> RowValue:
        """Few outputs of a sparse row: a running sum in a register for each of them."""
        dtype, outs = self._dtype(x.dtype), self.weights.shape[0]
        by_column = e.address(_transposed(self.weights), dtype)
        totals = [e.var(zero(dtype)) for _ in range(outs)]

        def add(j: str, v: str) -> None:
            value = e.let(e.cast(v, x.dtype, dtype), dtype).expr
            first = e.let(f"({j}) * {outs}", "int64").expr
            for o, total in enumerate(totals):
                weight = e.load(by_column, f"{first} + {o}", dtype, constant=True)
                _add_product(e, total, value, weight, dtype)

        x.each(add)
        return self._ended(e, totals, dtype)

    def _ended(self, e: Emitter, totals: list[str], dtype: str) -> RowValue:
        """The outputs, from sums held in registers."""
        if len(self.bias):
            for o, total in enumerate(totals):
                e.line(f"{total} = {total} + {e.at(self.bias, str(o), dtype)}")
        return e.joined([e.let(total, dtype) for total in totals], dtype, len(totals))

    def _many(self, e: Emitter, x: VectorValue) -> RowValue:
        """Several outputs of a sparse row: each stored value is added to every output."""
        dtype, outs = self._dtype(x.dtype), self.weights.shape[0]
        count = e.size(outs)
        sums = e.scratch(dtype, outs)
        by_column = e.address(_transposed(self.weights), dtype)
        zero = "0.0" if dtype == "float64" else "float32(0.0)"
        with e.loop(count) as o:
            e.store(sums, o, zero, dtype)

        def add(j: str, v: str) -> None:
            value = e.let(e.cast(v, x.dtype, dtype), dtype).expr
            with e.loop(count) as o:
                weight = e.load(by_column, f"({j}) * {count} + {o}", dtype, constant=True)
                e.store(sums, o, f"{e.load(sums, o, dtype)} + {value} * {weight}", dtype)

        x.each(add)
        if not len(self.bias):
            return e.dense(dtype, outs, lambda o: e.load(sums, o, dtype), size=count)
        return e.dense(
            dtype,
            outs,
            lambda o: f"({e.load(sums, o, dtype)} + {e.at(self.bias, o, dtype)})",
            size=count,
        )

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        (x,) = inputs
        assert isinstance(x.type, Vector)
        dtype = self._dtype(x.type.dtype)
        if dtype in FLOATS:
            multiply(e, x, product(self.weights, self.bias, dtype), out)
        else:
            self._whole_numbers(e, x, out, dtype)

    def _whole_numbers(self, e: Emitter, x: Column, out: Column, dtype: str) -> None:
        """Whole numbers by whole weights."""
        assert isinstance(x.type, Vector)
        weights = e.address(_transposed(self.weights), dtype)
        with e.loop(e.rows) as i:
            source = e.var(x.row(i), "r")
            target = e.var(out.row(i), "w")
            with e.loop(out.size) as o:
                e.store(target, o, e.at(self.bias, o, dtype) if len(self.bias) else "0", dtype)
            with e.loop(x.size) as j:
                loaded = e.load(source, j, x.type.dtype, constant=True)
                value = e.let(e.cast(loaded, x.type.dtype, dtype), dtype).expr
                with e.loop(out.size) as o:
                    weight = e.load(weights, f"{j} * {out.size} + {o}", dtype, constant=True)
                    e.store(target, o, f"{e.load(target, o, dtype)} + {value} * {weight}", dtype)


def _add_product(e: Emitter, total: str, value: str, weight: str, dtype: str) -> None:
    """One more term of a sum in a register."""
    if e.exact or dtype not in FLOATS:
        e.add(total, f"{value} * {weight}", dtype)
    else:
        e.add(total, f"loose_mul_{dtype}({value}, {weight})", dtype)


def _transposed(weights: Array) -> Array:
    return Array.of(weights.array.T)


# --- what adapters of linear estimators share -----------------------------------------------------


def affine(x: Flow, weights: object, bias: object) -> Flow:
    """x @ weights.T + bias for fitted numbers, in the dtypes numpy would go through.

    A plain Python number takes the dtype of what it is added to; a bias wider than the product
    widens it only when it is added.
    """
    table = np.atleast_2d(plain(weights))
    if type(bias) in (int, float):
        return x.linear(table, np.full(len(table), bias, table.dtype) if bias else [])
    values = np.broadcast_to(np.asarray(bias), (len(table),))
    if np.result_type(table, values) == table.dtype:
        return x.linear(table, values)
    return x.linear(table, []).cast("float64").add(values)


def plain(weights: object) -> Any:
    """Fitted weights as an array, also where `sparsify()` was called."""
    return weights.toarray() if hasattr(weights, "toarray") else np.asarray(weights)


def in_place(x: Flow, change: Callable[[Flow], Flow]) -> Flow:
    """`change` applied in place, as numpy does: computed in float64, stored in the dtype of x."""
    return change(x.cast("float64")).cast_like(x)
