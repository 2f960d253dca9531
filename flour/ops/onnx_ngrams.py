"""N-grams of whole numbers in rows of a fixed length, with or without gaps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Arity, Array, Columns, Op
from flour.core.types import Type, Vector

_NONE = -1


class Grams(Op):
    """The count of each n-gram of a pool in a row of codes, its entries up to `skips` apart.

    The pool is a tree: node k's children are `child[start[k]:start[k + 1]]`, ascending by `key`,
    and the n-gram that ends there counts in column `column[k]` (-1: none does). An n-gram's entries
    are all equally far apart; single entries are counted once, whatever the gaps.
    """

    method = ""
    start: Array
    key: Array
    child: Array
    column: Array
    width: int
    low: int
    high: int
    skips: int = 0
    arity = Arity.ONE_TO_MANY

    @classmethod
    def of(
        cls,
        grams: Sequence[Sequence[int]],
        columns: Sequence[int],
        width: int,
        lengths: tuple[int, int, int],
    ) -> Self:
        """The operator for these n-grams: (shortest, longest, widest gap)."""
        nodes: list[dict[int, int]] = [{}]
        ends = [_NONE]
        for gram, column in zip(grams, columns, strict=True):
            node = 0
            for entry in gram:
                if entry not in nodes[node]:
                    nodes[node][entry] = len(nodes)
                    nodes.append({})
                    ends.append(_NONE)
                node = nodes[node][entry]
            ends[node] = column
        sizes = np.cumsum([0, *map(len, nodes)])
        pairs = [pair for node in nodes for pair in sorted(node.items())]
        keys, children = zip(*pairs, strict=True) if pairs else ((), ())
        tables = (sizes, keys, children, ends)
        return cls(*(np.array(table, np.int64) for table in tables), width, *lengths)

    def check(self) -> None:
        start, key, child, column = self._tables()
        nodes = len(column)
        fine = len(start) == nodes + 1 and start[0] == 0 and start[-1] == len(key) == len(child)
        if not fine or np.any(np.diff(start) < 0) or np.any(column >= self.width):
            raise ParameterError("the tree of n-grams does not fit its tables")
        owner = np.repeat(np.arange(nodes), np.diff(start))
        if np.any(child <= owner) or np.any(child >= nodes):
            raise ParameterError("children stand behind their parents")
        if not 1 <= self.low <= self.high or self.skips < 0 or self.width < 1:
            raise ParameterError("n-grams need 1 <= low <= high, and no gaps below zero")

    def _tables(self) -> list[Any]:
        tables = [item.array for item in (self.start, self.key, self.child, self.column)]
        if any(table.dtype != np.int64 or table.ndim != 1 for table in tables):
            raise ParameterError("the tree of n-grams is in rows of int64")
        return tables

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "grams")
        expect(kind.dtype == "int64", f"grams needs codes in int64, got {kind}")
        return Vector(self.width, "float32")

    def _spans(self, width: int) -> int:
        """Entries that are further apart than a row is long never meet."""
        return min(self.skips + 2, width + 1)

    def structure(self) -> tuple[object, ...]:
        return (self.low == 1,)

    def reference(self, x: Columns) -> Columns:
        counts = np.zeros((len(x), self.width), np.float32)
        spans = range(1, self._spans(x.shape[1]))
        for number, row in enumerate(x.tolist()):
            for span, begin in product(spans, range(len(row))):
                self._count(row[begin::span], counts[number], 1 if span == 1 else 2)
        return counts

    def _count(self, row: Sequence[int], counts: NDArray[Any], shortest: int) -> None:
        """Walk down the tree from the first entry of a row."""
        node = 0
        for size, code in enumerate(row[: self.high], 1):
            node = self._below(node, code)
            if node < 0:
                return
            column = int(self.column.array[node])
            if size >= max(self.low, shortest) and column >= 0:
                counts[column] += 1

    def _below(self, node: int, code: int) -> int:
        first, last = self.start.array[node : node + 2]
        index = first + np.searchsorted(self.key.array[first:last], code)
        hit = index < last and self.key.array[index] == code
        return int(self.child.array[index]) if hit else _NONE

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        at, out = e.indexable(x), e.scratch("float32", self.width)
        count, spans = e.size(x.width), e.size(self._spans(x.width))
        low, high = e.size(self.low), e.size(self.high)
        with e.loop(e.size(self.width)) as o:
            e.store(out, o, "float32(0.0)", "float32")
        with e.loop(spans, "1") as span, e.loop(count) as begin:
            node, index, size = e.var("0", "k"), e.var(begin, "p"), e.var("1", "n")
            with e.block(f"while {node} >= 0 and {index} < {count} and {size} <= {high}:"):
                self._step(e, node, at(index))
                once = f" and ({size} > 1 or {span} == 1)" if self.low == 1 else ""
                with e.block(f"if {node} >= 0 and {size} >= {low}{once}:"):
                    self._add(e, out, node)
                e.line(f"{index} = {index} + {span}")
                e.line(f"{size} = {size} + 1")
        return e.dense("float32", self.width, lambda o: e.load(out, o, "float32"), stored=True)

    def _step(self, e: Emitter, node: str, value: str) -> None:
        """Go to the child with this key, or to -1."""
        code = e.let(value, "int64").expr
        low, high = e.var(e.at(self.start, node), "lo"), e.var(e.at(self.start, f"{node} + 1"))
        end = e.var(high, "end")
        with e.block(f"while {low} < {high}:"):
            middle = e.let(f"({low} + {high}) >> 1", "int64").expr
            with e.block(f"if {self._entry(e, self.key, middle)} < {code}:"):
                e.line(f"{low} = {middle} + 1")
            with e.block("else:"):
                e.line(f"{high} = {middle}")
        e.line(f"{node} = -1")
        hit = f"{low} < {end} and {self._entry(e, self.key, low)} == {code}"
        with e.block(f"if {hit}:"):
            e.line(f"{node} = {self._entry(e, self.child, low)}")

    @staticmethod
    def _entry(e: Emitter, table: Array, index: str) -> str:
        """An entry of a table, read only where it is needed: never ahead."""
        return e.load(e.address(table), index, "int64", constant=True)

    def _add(self, e: Emitter, out: str, node: str) -> None:
        column = e.let(self._entry(e, self.column, node), "int64").expr
        with e.block(f"if {column} >= 0:"):
            e.store(out, column, f"{e.load(out, column, 'float32')} + float32(1.0)", "float32")
