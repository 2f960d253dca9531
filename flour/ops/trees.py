"""Ensembles of decision trees as one data-driven operator: no model has code of its own.

Each tree adds its leaf's values to the outputs from column `target` on, in the order of the trees,
starting from `base`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flour.errors import ParameterError
from flour.op import Array, Columns
from flour.ops.scorer import LEAST_ROWS, layout, score
from flour.ops.walk import Nodes, raw
from flour.types import FLOATS, Type, Vector

if TYPE_CHECKING:
    from flour.emission import Column, Emitter


class Walk(Nodes, abstract=True):
    """What looks at its input only in the tests, so that thresholds can be pulled back."""


class Trees(Walk):
    """The sum over the trees of the leaf values each row reaches, divided at the end if asked."""

    value: Array
    #: The first output column each tree adds to.
    target: Array
    base: Array
    #: What the sums are divided by (how many trees there are, for a mean); 0 for nothing.
    divisor: int = 0
    #: The float width the sums are made in.
    dtype: str = "float64"

    def leaf_count(self) -> int:
        return int(self.value.shape[0])

    def check(self) -> None:
        if self.dtype not in FLOATS:
            raise ParameterError(f"leaf values are summed as floats, not as {self.dtype}")
        if self.value.array.ndim != 2 or not self.base.array.size:
            raise ParameterError("a leaf has a row of values, an ensemble at least one output")
        super().check()
        (target,), last = raw(self.target), len(self.base) - self.value.shape[1]
        if len(target) != len(self.roots) or target.min() < 0 or target.max() > last:
            raise ParameterError("a tree adds to an output that is not there")

    def infer(self, x: Type) -> Vector:
        self._needs(x)
        return Vector(len(self.base), self.dtype)

    def reference(self, x: Columns) -> Columns:
        x = self.rows(x)
        value, base = (part.astype(self.dtype) for part in raw(self.value, self.base))
        made = np.tile(base, (len(x), 1))
        span = self.value.shape[1]
        for root, first in zip(self.roots.array, self.target.array, strict=True):
            made[:, first : first + span] += value[self.walk(x, int(root))]
        return made / np.dtype(self.dtype).type(self.divisor) if self.divisor else made

    def structure(self) -> tuple[object, ...]:
        span = self.value.shape[1] == 1
        return (*super().structure(), self.dtype, self.divisor > 0, span)

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        (x,) = inputs
        sorted_nodes = layout(self)
        if sorted_nodes is None:
            self._walk_rows(e, x, out)
            return
        with e.block(f"if {e.rows} >= {LEAST_ROWS}:"):
            score(e, self, sorted_nodes, x, out)
        with e.block("else:"):
            self._walk_rows(e, x, out)

    def _walk_rows(self, e: Emitter, x: Column, out: Column) -> None:
        target, roots = e.address(self.target), e.address(self.roots)
        value = e.address(self.value, self.dtype)
        span = "1" if self.value.shape[1] == 1 else e.size(self.value.shape[1])
        count = e.size(len(self.roots))
        with e.loop(e.rows) as i:
            row, into = e.var(x.row(i), "r"), e.var(out.row(i), "w")
            with e.loop(out.size) as o:
                e.store(into, o, e.at(self.base, o, self.dtype), self.dtype)
            with e.loop(count) as t:
                root = f"int64({e.load(roots, t, 'int32', constant=True)})"
                leaf = self.descend(e, x, row, root)
                first = e.let(f"int64({e.load(target, t, 'int32', constant=True)})", "int64").expr
                with e.loop(span) as v:
                    one = e.load(value, f"{leaf} * {span} + {v}", self.dtype, constant=True)
                    at = f"{first} + {v}"
                    e.store(into, at, f"{e.load(into, at, self.dtype)} + {one}", self.dtype)
            if self.divisor:
                by = e.number(self.divisor, self.dtype)
                with e.loop(out.size) as o:
                    e.store(into, o, f"{e.load(into, o, self.dtype)} / {by}", self.dtype)


class TreeLeaves(Walk):
    """The number of the leaf each row reaches, one column per tree."""

    #: The number of each leaf, as the training library counts them.
    number: Array

    def leaf_count(self) -> int:
        return len(self.number)

    def infer(self, x: Type) -> Vector:
        self._needs(x)
        return Vector(len(self.roots), "int64")

    def reference(self, x: Columns) -> Columns:
        x = self.rows(x)
        number = self.number.array.astype(np.int64)
        leaves = [number[self.walk(x, int(root))] for root in self.roots.array]
        return np.stack(leaves, axis=1)

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        (x,) = inputs
        number, roots = e.address(self.number, "int64"), e.address(self.roots)
        count = e.size(len(self.roots))
        with e.loop(e.rows) as i:
            row, into = e.var(x.row(i), "r"), e.var(out.row(i), "w")
            with e.loop(count) as t:
                root = f"int64({e.load(roots, t, 'int32', constant=True)})"
                leaf = self.descend(e, x, row, root)
                e.store(into, t, e.load(number, leaf, "int64", constant=True), "int64")
