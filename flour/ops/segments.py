"""A row's vector as runs of equal length, and operators that compute run by run.

A tensor of more than two dimensions is a flat vector here; reducing one of its axes is reducing
runs of that axis's length, once the axis is brought to the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy import isnan
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import held, write
from flour.core.op import Arity, Columns, Op
from flour.core.types import FLOATS, Type, Vector
from flour.core.words import Number, Row, added, indexable, like, narrowed, scratch, size


class ColumnRuns(Op, abstract=True, method="", arity=Arity.AGGREGATE):
    """Runs of `length` columns; subclasses give the function of a run."""

    length: int
    #: The dtype of the result, or None for that of the input.
    result: ClassVar[str | None] = None
    #: The function of a row, the first column of a run, its length, and the choice if there is one.
    native: ClassVar[Callable[..., Number]]

    def check(self) -> None:
        if self.length < 1:
            raise ParameterError("a run has at least one column", found=str(self.length))

    def infer(self, x: Type) -> Vector:
        kind = vector(x, self.name)
        expect(kind.dtype != "bool", f"{self.name} computes on numbers, got {kind}")
        expect(kind.width % self.length == 0, f"{kind} is not made of runs of {self.length}")
        return Vector(self.columns(kind.width // self.length), self.result or kind.dtype)

    def columns(self, runs: int) -> int:
        """The width of the result for this number of runs."""
        return runs

    @property
    def choice(self) -> np.ufunc | None:
        """The comparison that `native` takes as well; None for sums."""
        return None

    def compute(self, x: NDArray[Any]) -> Any:
        """The result for an array of (rows, runs, length)."""
        raise NotImplementedError(f"{self.name}.compute")

    def reference(self, x: Columns) -> Columns:
        runs = x.shape[1] // self.length
        result = self.compute(x.reshape(len(x), runs, self.length))
        return result.reshape(len(x), self.columns(runs)).astype(self.result or x.dtype)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        dtype, runs = self.result or x.dtype, x.width // self.length
        function, choice = type(self).native, self.choice
        return held(e, *write(e, of_runs, x, self.length, runs, dtype, function, choice))


def of_runs(
    x: Row, length: int, runs: int, dtype: str, function: Callable[..., Number], choice: Any
) -> Any:
    """Numbers of each run, by a function of its first column and its length."""
    columns, out = indexable(x), scratch(dtype, runs)
    count, width = size(runs), size(length)
    for i in range(count):
        start = i * width
        if choice is None:
            out[i] = function(columns, start, width)
        else:
            out[i] = function(columns, start, width, choice)
    return out, runs, count


class SegmentSum(ColumnRuns):
    """The sum of each run."""

    def compute(self, x: NDArray[Any]) -> Any:
        return x.sum(axis=2, dtype=x.dtype)

    @staticmethod
    def native(x: Row, start: int, length: int) -> Number:
        total = like(x, 0)
        for j in range(length):
            value = x[start + j]
            total = added(total, value) if x.dtype in FLOATS else like(x, total + value)
        return total


class SegmentProduct(ColumnRuns):
    """The product of each run."""

    def compute(self, x: NDArray[Any]) -> Any:
        return x.prod(axis=2, dtype=x.dtype)

    @staticmethod
    def native(x: Row, start: int, length: int) -> Number:
        total = like(x, 1)
        for j in range(length):
            total = narrowed(total * x[start + j])
        return total


class SegmentMax(ColumnRuns):
    """The largest of each run; NaN if any is NaN."""

    further: ClassVar[np.ufunc] = np.maximum

    @property
    def choice(self) -> np.ufunc:
        return self.further

    def compute(self, x: NDArray[Any]) -> Any:
        return x.max(axis=2)

    @staticmethod
    def native(
        x: Row, start: int, length: int, further: Callable[[Number, Number], Number]
    ) -> Number:
        best = x[start]
        for j in range(1, length):
            best = narrowed(further(best, x[start + j]))
        return best


class SegmentMin(SegmentMax):
    """The smallest of each run; NaN if any is NaN."""

    further = np.minimum

    def compute(self, x: NDArray[Any]) -> Any:
        return x.min(axis=2)


#: True if a column replaces the best so far, by (smallest, last).
_WINS = {
    (False, False): np.greater,
    (False, True): np.greater_equal,
    (True, False): np.less,
    (True, True): np.less_equal,
}


class SegmentPlace(ColumnRuns, result="int64"):
    """The index of the largest (or smallest) of each run: the first of equals, or the last.

    Column by column, as onnxruntime does it: NaN wins only in a run's first column.
    """

    smallest: bool = False
    last: bool = False

    @property
    def choice(self) -> np.ufunc:
        """The comparison of a column with the best one so far that makes it the best."""
        return _WINS[self.smallest, self.last]

    def compute(self, x: NDArray[Any]) -> Any:
        best, index = x[:, :, 0].copy(), np.zeros(x.shape[:2], np.int64)
        for j in range(1, self.length):
            better = self.choice(x[:, :, j], best)
            best, index = np.where(better, x[:, :, j], best), np.where(better, j, index)
        return index

    @staticmethod
    def native(x: Row, start: int, length: int, wins: Callable[[Number, Number], Number]) -> Number:
        best, index = x[start], 0
        for j in range(1, length):
            value = x[start + j]
            if wins(value, best):
                best = value
                index = j
        return index


class RunningSum(ColumnRuns):
    """The sums of each run so far: with each column's own value or without, from either end."""

    without_own: bool = False
    backwards: bool = False

    def columns(self, runs: int) -> int:
        return runs * self.length

    def compute(self, x: NDArray[Any]) -> Any:
        runs = x[:, :, ::-1] if self.backwards else x
        sums = np.cumsum(runs, axis=2, dtype=x.dtype)
        if self.without_own:
            sums = np.concatenate([np.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], axis=2)
        return sums[:, :, ::-1] if self.backwards else sums

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        runs = x.width // self.length
        how = {"without_own": self.without_own, "backwards": self.backwards}
        return held(e, *write(e, running_sums, x, self.length, runs, **how))


def running_sums(x: Row, length: int, runs: int, *, without_own: bool, backwards: bool) -> Any:
    """The sums of each run so far."""
    columns, out, width = indexable(x), scratch(x.dtype, length * runs), size(length)
    for i in range(size(runs)):
        start, total = i * width, like(x, 0)
        for j in range(width):
            index = start + width - 1 - j if backwards else start + j
            value = columns[index]
            if without_own:
                out[index] = total
            total = narrowed(total + value)
            if not without_own:
                out[index] = total
    return out, length * runs, len(x)


class TopPlaces(ColumnRuns, result="int64"):
    """The indices of the `count` largest (or smallest) of each run, best first, ties in order.

    NaN is larger than every number.
    """

    count: int
    smallest: bool = False

    def check(self) -> None:
        super().check()
        if not 1 <= self.count <= self.length:
            raise ParameterError("no more places than a run has columns", found=str(self.count))

    def columns(self, runs: int) -> int:
        return runs * self.count

    def compute(self, x: NDArray[Any]) -> Any:
        if self.smallest:
            order = np.argsort(x, axis=2, kind="stable")
        else:
            back = np.argsort(x[:, :, ::-1], axis=2, kind="stable")[:, :, ::-1]
            order = self.length - 1 - back
        return order[:, :, : self.count]

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        runs = x.width // self.length
        how = x, self.length, runs, self.count
        return held(e, write(e, top_places, *how, smallest=self.smallest), runs * self.count)


def top_places(x: Row, length: int, runs: int, count: int, *, smallest: bool) -> Any:
    """The places of the best columns of each run; those kept stay sorted."""
    columns, out = indexable(x), scratch("int64", runs * count)
    width, kept = size(length), size(count)
    for i in range(size(runs)):
        start, first = i * width, i * kept
        for j in range(width):
            value, rank = columns[start + j], min(j, kept)
            while True:
                if rank == 0:
                    break
                before = out[first + rank - 1]
                other = columns[start + before]
                if not is_better(value, other, smallest=smallest):
                    break
                if rank < kept:
                    out[first + rank] = before
                rank -= 1
            if rank < kept:
                out[first + rank] = j
    return out


def is_better(value: Number, other: Number, *, smallest: bool) -> Any:
    """True if a later value goes before an earlier one."""
    ahead = value < other if smallest else value > other
    if value.dtype not in FLOATS:
        return ahead
    nan, plain = (other, value) if smallest else (value, other)
    return ahead or (isnan(nan) and not isnan(plain))
