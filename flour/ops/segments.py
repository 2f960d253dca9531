"""A row's vector as runs of equal length, and operators that compute run by run.

A tensor of more than two dimensions is a flat vector here; reducing one of its axes is reducing
runs of that axis's length, once the axis is brought to the end.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.emission import At, Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Columns, Op
from flour.core.types import FLOATS, Type, Vector
from flour.ops.unary import whole


class Segments(Op, abstract=True):
    """Runs of `length` columns; subclasses give the function of a run."""

    method = ""
    length: int
    arity = Arity.AGGREGATE
    #: The dtype of the result, or None for that of the input.
    result: ClassVar[str | None] = None

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

    def compute(self, x: NDArray[Any]) -> Any:
        """The result for an array of (rows, runs, length)."""
        raise NotImplementedError(f"{self.name}.compute")

    def reference(self, x: Columns) -> Columns:
        runs = x.shape[1] // self.length
        result = self.compute(x.reshape(len(x), runs, self.length))
        return result.reshape(len(x), self.columns(runs)).astype(self.result or x.dtype)

    def run(self, e: Emitter, at: At, start: str, dtype: str) -> str:
        """Code for the run that starts at a column; the local that holds the result."""
        raise NotImplementedError(f"{self.name}.run")

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        dtype, runs = self.result or x.dtype, x.width // self.length
        at, out, count = e.indexable(x), e.scratch(dtype, runs), e.size(runs)
        length = e.size(self.length)
        with e.loop(count) as i:
            start = e.let(f"{i} * {length}", "int64").expr
            e.store(out, i, self.run(e, at, start, x.dtype), dtype)
        return e.dense(dtype, runs, lambda j: e.load(out, j, dtype), size=count, stored=True)

    def each(self, e: Emitter, first: str = "0") -> Any:
        """A loop over the columns of a run."""
        return e.loop(e.size(self.length), first)


class SegmentSum(Segments):
    """The sum of each run."""

    def compute(self, x: NDArray[Any]) -> Any:
        return x.sum(axis=2, dtype=x.dtype)

    def run(self, e: Emitter, at: At, start: str, dtype: str) -> str:
        total = e.var(f"{dtype}(0)")
        with self.each(e) as j:
            value = e.let(at(f"{start} + {j}"), dtype).expr
            if dtype in FLOATS:
                e.add(total, value, dtype)
            else:
                e.line(f"{total} = {dtype}({total} + {value})")
        return total


class SegmentProduct(Segments):
    """The product of each run."""

    def compute(self, x: NDArray[Any]) -> Any:
        return x.prod(axis=2, dtype=x.dtype)

    def run(self, e: Emitter, at: At, start: str, dtype: str) -> str:
        total = e.var(f"{dtype}(1)")
        with self.each(e) as j:
            value = e.let(at(f"{start} + {j}"), dtype).expr
            e.line(f"{total} = {whole(f'({total} * {value})', dtype)}")
        return total


class SegmentMax(Segments):
    """The largest of each run; NaN if any is NaN."""

    intrinsic: ClassVar[str] = "maximum"

    def compute(self, x: NDArray[Any]) -> Any:
        return x.max(axis=2)

    def run(self, e: Emitter, at: At, start: str, dtype: str) -> str:
        best = e.var(at(start))
        with self.each(e, "1") as j:
            larger = f"{self.intrinsic}({best}, {at(f'{start} + {j}')})"
            e.line(f"{best} = {whole(larger, dtype)}")
        return best


class SegmentMin(SegmentMax):
    """The smallest of each run; NaN if any is NaN."""

    intrinsic = "minimum"

    def compute(self, x: NDArray[Any]) -> Any:
        return x.min(axis=2)


#: Whether a column replaces the best so far, by (smallest, last).
_WINS = {
    (False, False): np.greater,
    (False, True): np.greater_equal,
    (True, False): np.less,
    (True, True): np.less_equal,
}


class SegmentPlace(Segments):
    """The index of the largest (or smallest) of each run: the first of equals, or the last.

    Column by column, as onnxruntime does it: NaN wins only in a run's first column.
    """

    result = "int64"
    smallest: bool = False
    last: bool = False

    def structure(self) -> tuple[object, ...]:
        return (self.smallest, self.last)

    def compute(self, x: NDArray[Any]) -> Any:
        wins = _WINS[self.smallest, self.last]
        best, index = x[:, :, 0].copy(), np.zeros(x.shape[:2], np.int64)
        for j in range(1, self.length):
            better = wins(x[:, :, j], best)
            best, index = np.where(better, x[:, :, j], best), np.where(better, j, index)
        return index

    def run(self, e: Emitter, at: At, start: str, dtype: str) -> str:
        best, index = e.var(at(start)), e.var("0")
        sign = ("<" if self.smallest else ">") + ("=" if self.last else "")
        with self.each(e, "1") as j:
            value = e.let(at(f"{start} + {j}"), dtype).expr
            with e.block(f"if {value} {sign} {best}:"):
                e.line(f"{best} = {value}")
                e.line(f"{index} = {j}")
        return index


class RunningSum(Segments):
    """The sums of each run so far: with each column's own value or without, from either end."""

    without_own: bool = False
    backwards: bool = False

    def structure(self) -> tuple[object, ...]:
        return (self.without_own, self.backwards)

    def columns(self, runs: int) -> int:
        return runs * self.length

    def compute(self, x: NDArray[Any]) -> Any:
        runs = x[:, :, ::-1] if self.backwards else x
        sums = np.cumsum(runs, axis=2, dtype=x.dtype)
        if self.without_own:
            sums = np.concatenate([np.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], axis=2)
        return sums[:, :, ::-1] if self.backwards else sums

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        dtype = x.dtype
        at, out, length = e.indexable(x), e.scratch(dtype, x.width), e.size(self.length)
        with e.loop(e.size(x.width // self.length)) as i:
            start = e.let(f"{i} * {length}", "int64").expr
            total = e.var(f"{dtype}(0)")
            with e.loop(length) as j:
                from_end = f"{start} + {length} - 1 - {j}"
                index = e.let(from_end if self.backwards else f"{start} + {j}", "int64").expr
                value = e.let(at(index), dtype).expr
                if self.without_own:
                    e.store(out, index, total, dtype)
                e.line(f"{total} = {whole(f'({total} + {value})', dtype)}")
                if not self.without_own:
                    e.store(out, index, total, dtype)
        return e.dense(dtype, x.width, lambda j: e.load(out, j, dtype), size=x.size, stored=True)


class TopPlaces(Segments):
    """The indices of the `count` largest (or smallest) of each run, best first, ties in order.

    NaN is larger than every number.
    """

    count: int
    smallest: bool = False
    result = "int64"

    def check(self) -> None:
        super().check()
        if not 1 <= self.count <= self.length:
            raise ParameterError("no more places than a run has columns", found=str(self.count))

    def structure(self) -> tuple[object, ...]:
        return (self.smallest,)

    def columns(self, runs: int) -> int:
        return runs * self.count

    def compute(self, x: NDArray[Any]) -> Any:
        if self.smallest:
            order = np.argsort(x, axis=2, kind="stable")
        else:
            back = np.argsort(x[:, :, ::-1], axis=2, kind="stable")[:, :, ::-1]
            order = self.length - 1 - back
        return order[:, :, : self.count]

    def _better(self, value: str, other: str, dtype: str) -> str:
        """Whether a later value goes before an earlier one."""
        sign = f"{value} {'<' if self.smallest else '>'} {other}"
        if dtype not in FLOATS:
            return sign
        nan, plain = (other, value) if self.smallest else (value, other)
        return f"({sign} or ({nan} != {nan} and {plain} == {plain}))"

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        runs = x.width // self.length
        at, out = e.indexable(x), e.scratch("int64", runs * self.count)
        length, count = e.size(self.length), e.size(self.count)
        with e.loop(e.size(runs)) as i:
            start, first = (e.let(f"{i} * {n}", "int64").expr for n in (length, count))
            with e.loop(length) as j:
                value = e.let(at(f"{start} + {j}"), x.dtype).expr
                rank = e.var(f"min({j}, {count})", "k")
                with e.block("while True:"):
                    with e.block(f"if {rank} == 0:"):
                        e.line("break")
                    before = e.let(e.load(out, f"{first} + {rank} - 1", "int64"), "int64").expr
                    other = e.let(at(f"{start} + {before}"), x.dtype).expr
                    with e.block(f"if not {self._better(value, other, x.dtype)}:"):
                        e.line("break")
                    with e.block(f"if {rank} < {count}:"):
                        e.store(out, f"{first} + {rank}", before, "int64")
                    e.line(f"{rank} -= 1")
                with e.block(f"if {rank} < {count}:"):
                    e.store(out, f"{first} + {rank}", j, "int64")
        return e.dense("int64", runs * self.count, lambda j: e.load(out, j, "int64"), stored=True)
