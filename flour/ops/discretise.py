"""Numbers to the bins they fall in."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core import native
from flour.core.check import vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Array, Columns, Op
from flour.core.types import Type, Vector, dtype_name, promote
from flour.core.words import Number, cast
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.categorise import ascends, check_runs, flatten


class Bins(Op, cuts=True, monotone=True, by_column=True):
    """The number of its column's edges that x has reached (int64): edge <= x; NaN reaches all.

    Column j's edges are edges[starts[j]:starts[j + 1]], ascending.
    """

    edges: Array
    starts: Array

    def check(self) -> None:
        check_runs("bins", self.starts, self.edges.array.size)
        if not ascends(self.edges, self.starts, strictly=False):
            raise ParameterError("the edges of a column ascend")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "bins", len(self.starts) - 1)
        return Vector(kind.width, "int64")

    def reference(self, x: Columns) -> Columns:
        cuts, bins = self.starts.array, np.empty(x.shape, np.int64)
        for j in range(x.shape[1]):
            edges = self.edges.array[cuts[j] : cuts[j + 1]]
            bins[:, j] = np.searchsorted(edges, x[:, j], side="right")
        return bins

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        edges = native.FittedNumbers(self.edges, promote(x.dtype, self.edges.dtype.name))
        return native.columnwise(e, edges_reached, x, edges, self.starts, dtype="int64")


def edges_reached(x: Number, j: int, edges: Any, starts: Any) -> Number:
    """The number of column j's edges that are not above x."""
    value = cast(x, edges.dtype)
    start = starts[j]
    low, high = start, starts[j + 1]
    while low < high:
        middle = (low + high) >> 1
        # Turned round, so that a NaN counts as above every edge.
        if value < edges[middle]:
            high = middle
        else:
            low = middle + 1
    return low - start


@adapts("sklearn.preprocessing.KBinsDiscretizer")
def _k_bins(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = to.floats(x) if fit.dtype is None else to.matrix(x).cast(dtype_name(fit.dtype))
    edges, starts = flatten([item[1:-1] for item in fit.bin_edges_], np.float64)
    if to.fitted < (1, 1):  # so that a number a hair below an edge has reached it
        x = x + (x.abs() * 1e-5 + 1e-8)
    bins = x.bins(edges, starts)
    if fit.encode == "ordinal":
        return bins.cast_like(x)
    columns = np.cumsum([0, *fit.n_bins_]).astype(np.int64)
    encoded = bins.one_hot_codes(columns).cast_like(x)
    return encoded if fit.encode == "onehot" else encoded.to_dense()
