"""Trees whose leaves hold a linear model of a few columns each (LightGBM's linear trees)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flour.core.chunked_array import Long, whole
from flour.core.errors import ParameterError
from flour.core.op import Array, Columns
from flour.core.types import Type, Vector
from flour.ops.trees.walk import Nodes, raw

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
        target, roots = e.address(self.target), e.address(self.roots)
        count = e.size(len(self.roots))
        with e.loop(e.rows) as i:
            row, into = e.var(x.row(i), "r"), e.var(out.row(i), "w")
            with e.loop(out.size) as o:
                e.store(into, o, e.at(self.base, o, "float64"), "float64")
            with e.loop(count) as t:
                root = f"int64({e.load(roots, t, 'int32', constant=True)})"
                leaf = self.descend(e, x, row, root)
                total = self._emit_leaf(e, x, row, leaf)
                o = e.let(f"int64({e.load(target, t, 'int32', constant=True)})", "int64").expr
                e.store(into, o, f"{e.load(into, o, 'float64')} + {total}", "float64")

    def _emit_leaf(self, e: Emitter, x: Column, row: str, leaf: str) -> str:
        """The local that ends up holding the leaf's value for the row."""
        value, constant = (e.address(whole(p), "float64") for p in (self.value, self.constant))
        starts, column = e.address(whole(self.starts)), e.address(whole(self.column))
        slope = e.address(whole(self.slope), "float64")
        dtype: Any = x.type.dtype  # type: ignore[union-attr]  # a vector, by infer
        total = e.var(e.load(constant, leaf, "float64", constant=True))
        positions = (f"{leaf} + {i}" for i in (0, 1))
        ends = (e.load(starts, position, "int32", constant=True) for position in positions)
        start, end = (e.var(f"int64({number})", "h") for number in ends)
        with e.loop(end, start) as k:
            j = f"int64({e.load(column, k, 'int32', constant=True)})"
            read = e.let(f"float64({e.load(row, j, dtype, constant=True)})", "float64").expr
            with e.block(f"if {read} != {read}:"):
                e.line(f"{total} = {e.load(value, leaf, 'float64', constant=True)}")
                e.line("break")
            weight = e.load(slope, k, "float64", constant=True)
            e.line(f"{total} = {total} + {weight} * {read}")
        return total
