"""Trees whose leaves hold a linear model of a few columns each (LightGBM's linear trees)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy import isnan
from numpy.typing import NDArray

from flour.core.chunked_array import Long, whole
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, write
from flour.core.op import Array, Columns
from flour.core.types import Type, Vector
from flour.core.words import (
    Number,
    Numbers,
    Row,
    cast,
    fitted,
    read_row,
    rows,
    size,
    width,
    write_row,
)
from flour.ops.trees.walk import Nodes, Tables, raw, walked

if TYPE_CHECKING:
    from flour.core.emission import Column, Emitter

_TABLES = {"starts": "int32", "column": "int32", "target": "int32"}


class LinearTrees(Nodes):
    """The sum over the trees of constant + slopes @ columns of the leaf each row reaches.

    The terms of leaf k are starts[k] up to starts[k + 1], added in order. Where a column they read
    is NaN, the leaf counts `value` instead.
    """

    value: Long
    constant: Long
    starts: Long
    column: Long
    slope: Long
    #: The output column each tree adds to.
    target: Array
    base: Array

    def leaf_count(self) -> int:
        return len(self.value)

    def check(self) -> None:
        for key, dtype in _TABLES.items():
            table = self.fields()[key]
            if table.array.ndim != 1 or table.dtype.name != dtype:
                raise ParameterError(f"{key} is a row of {dtype}", found=repr(table))
        starts, column = raw(self.starts, self.column)
        runs = len(starts) == len(self.value) + 1 and starts[0] == 0 and starts[-1] == len(column)
        if not runs or np.any(np.diff(starts) < 0) or len(self.slope) != len(column):
            raise ParameterError("every leaf has a run of terms")
        if len(self.constant) != len(self.value) or np.any(column < 0):
            raise ParameterError("every leaf has a constant and reads columns")
        super().check()
        (target,) = raw(self.target)
        if len(target) != len(self.roots) or target.min() < 0 or target.max() >= len(self.base):
            raise ParameterError("a tree adds to an output that is not there")

    def infer(self, x: Type) -> Vector:
        kind = self._needs(x)
        last = int(self.column.array.max(initial=-1))
        if last >= kind.width:
            raise ParameterError(f"the leaves read column {last}, the input has {kind.width}")
        return Vector(len(self.base), "float64")

    def reference(self, x: Columns) -> Columns:
        x = self.rows(x)
        sums = np.tile(self.base.array.astype(np.float64), (len(x), 1))
        with self.together():
            for root, target in zip(self.roots.array, self.target.array, strict=True):
                sums[:, target] += self._leaf(x.astype(np.float64), self.walk(x, int(root)))
        return sums

    def _leaf(self, x: NDArray[np.float64], leaf: NDArray[np.int64]) -> NDArray[np.float64]:
        """The value of the leaf that each row reached, its terms added in order."""
        value, constant, starts, column, slope = raw(
            self.value, self.constant, self.starts, self.column, self.slope
        )
        start, end = starts[leaf].astype(np.int64), starts[leaf + 1].astype(np.int64)
        sums: NDArray[np.float64] = constant[leaf].astype(np.float64)
        missing = np.zeros(len(leaf), bool)
        for k in range(int((end - start).max(initial=0))):
            rows = np.flatnonzero(start + k < end)
            term = start[rows] + k
            read = x[rows, column[term]]
            missing[rows] |= np.isnan(read)
            with np.errstate(all="ignore"):
                sums[rows] += slope[term] * read
        return np.where(missing, value[leaf], sums)

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        (x,) = inputs
        assert isinstance(x.type, Vector)
        terms = (self.value, self.constant, self.slope, self.starts, self.column)
        base = FittedNumbers(self.base, "float64")
        forest = Forest(self.tables(x.type), self.roots, self.target, len(self.roots))
        write(e, summed, x, out, base, Terms(*map(whole, terms)), forest)


class Terms(NamedTuple):
    """The numbers of the leaves' linear models."""

    value: Numbers
    constant: Numbers
    slope: Numbers
    starts: Numbers
    column: Numbers


class Forest(NamedTuple):
    """The nodes of all trees, and for each its root and the output that it adds to."""

    tables: Tables
    roots: Numbers
    target: Numbers
    trees: int


def summed(x: Numbers, out: Numbers, base: Numbers, terms: Terms, forest: Forest) -> None:
    """Add up what the leaves of all trees say about every row of a block."""
    target, roots = fitted(forest.target), fitted(forest.roots)
    count = size(forest.trees)
    for i in range(rows(x)):
        row, sums = read_row(x, i), write_row(out, i)
        for o in range(width(out)):
            sums[o] = base[o]
        for t in range(count):
            leaf = walked(row, cast(roots[t], "int64"), forest.tables)
            total = modelled(row, leaf, terms)
            o = cast(target[t], "int64")
            sums[o] += total


def modelled(row: Row, leaf: int, terms: Terms) -> Number:
    """The value of a leaf for a row."""
    value, constant = fitted(terms.value, "float64"), fitted(terms.constant, "float64")
    starts, column = fitted(terms.starts), fitted(terms.column)
    slope = fitted(terms.slope, "float64")
    total = constant[leaf]
    start, end = cast(starts[leaf], "int64"), cast(starts[leaf + 1], "int64")
    for k in range(start, end):
        read = cast(row[cast(column[k], "int64")], "float64")
        if isnan(read):
            total = value[leaf]
            break
        total = total + slope[k] * read
    return total
