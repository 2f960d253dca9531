"""Dot products with fitted weights: predictors, projections, every layer of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import vector
from flour.core.emission import Column, Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, listed, write
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import ANYTHING, FLOATS, Extent, Type, Vector, extent_of, promote
from flour.core.words import (
    Numbers,
    Row,
    added,
    cast,
    read_row,
    registers,
    rows,
    scratch,
    size,
    stored,
    times,
    width,
    write_row,
    zero,
)
from flour.core.words import fitted as fitted_numbers
from flour.language.flow import Flow
from flour.ops.product import multiply, product

#: Up to this many outputs of a sparse row are summed in a register each.
_FEW = 4


class Linear(Op, arity=Arity.AGGREGATE, bound=Bound.COMPUTE, takes_sparse=True):
    """x @ weights.T + bias: one output per row of `weights`, in numpy's promoted dtype.

    An empty bias adds nothing.
    """

    weights: Array
    bias: Array

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
        # Sums in float32 are taken to be of numbers up to 1e30: see docs/reference/scikit-learn.md.
        narrow = self._dtype(vector(kinds[0], "linear").dtype) == "float32"
        weights, bias = (np.abs(part.array.astype("f8")) for part in (self.weights, self.bias))
        largest = min(x.largest, 1e30) if narrow else x.largest
        with np.errstate(over="ignore"):
            return extent_of(weights.sum(axis=1) * largest + bias.sum())

    def infer(self, x: Vector) -> Vector:
        kind = vector(x, "linear", self.weights.shape[1])
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

    def wants_kernel(self, *inputs: Type) -> bool:
        (x,) = inputs
        return isinstance(x, Vector) and not x.sparse and self.weights.shape[0] > 1

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        outs, dtype = self.weights.shape[0], self._dtype(x.dtype)
        bias = FittedNumbers(self.bias, dtype) if len(self.bias) else None
        by_column = FittedNumbers(self.weights if outs == 1 else _transposed(self.weights), dtype)
        if outs > _FEW:
            return listed(e, write(e, summed_in_memory, x, by_column, bias, outs), dtype, outs)
        totals = write(e, summed_in_registers, x, by_column, bias, tuple(range(outs)))
        return e.joined([e.let(total, dtype) for total in totals], dtype, outs)

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        (x,) = inputs
        assert isinstance(x.type, Vector)
        dtype = self._dtype(x.type.dtype)
        if dtype in FLOATS:
            multiply(e, x, product(self.weights, self.bias, dtype), out)
        else:
            by_column = FittedNumbers(_transposed(self.weights), dtype)
            bias = FittedNumbers(self.bias, dtype)
            write(e, summed_in_place, x, by_column, bias if len(self.bias) else None, out)


def summed_in_registers(x: Row, weights: Numbers, bias: Numbers, outputs: tuple[int, ...]) -> Any:
    """Few dot products of a row, each with a running sum in a register."""
    by_column, totals = fitted_numbers(weights), registers(weights.dtype, len(outputs))
    for j, v in stored(x):
        value, first = cast(v, weights.dtype), j * len(outputs)
        for o in outputs:
            totals[o] = added(totals[o], times(value, by_column[first + o]))
    if bias is not None:
        for o in outputs:
            totals[o] = totals[o] + bias[o]
    return totals


def summed_in_memory(x: Row, weights: Numbers, bias: Numbers, outputs: int) -> Any:
    """Several dot products of a sparse row: each stored value is added to every sum."""
    count, sums = size(outputs), scratch(weights.dtype, outputs)
    by_column = fitted_numbers(weights)
    for o in range(count):
        sums[o] = zero(weights)
    for j, v in stored(x):
        value = cast(v, weights.dtype)
        for o in range(count):
            sums[o] += value * by_column[j * count + o]
    return [sums[o] if bias is None else sums[o] + bias[o] for o in range(count)]


def summed_in_place(x: Numbers, weights: Numbers, bias: Numbers, out: Numbers) -> None:
    """The products of whole numbers, for every row of a block."""
    by_column = fitted_numbers(weights)
    for i in range(rows(x)):
        source, sums = read_row(x, i), write_row(out, i)
        for o in range(width(out)):
            sums[o] = 0 if bias is None else bias[o]
        for j in range(width(x)):
            value = cast(source[j], weights.dtype)
            for o in range(width(out)):
                sums[o] += value * by_column[j * width(out) + o]


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
