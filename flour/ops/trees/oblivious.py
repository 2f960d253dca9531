"""Oblivious trees (CatBoost's): all nodes of a level ask one question, so answers are an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy import inf, isnan
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.errors import ParameterError
from flour.core.native import write
from flour.core.op import Arity, Array, Bound, Columns, Op
from flour.core.types import FLOATS, Type, Vector
from flour.core.words import (
    Number,
    Numbers,
    cast,
    fitted,
    number,
    read_row,
    rows,
    scratch,
    size,
    write_row,
)
from flour.ops.trees.walk import raw

if TYPE_CHECKING:
    from flour.core.emission import Column, Emitter

#: Rows that are answered together: their columns stand side by side in the processor's cache.
ROWS = 64
#: Fewer rows are answered one by one.
_LEAST = 12
MOST_LEVELS = 16


class ObliviousTrees(Op):
    """The sum of the values of the leaves that a row reaches in trees of equal questions.

    Level k of a tree asks `float32(x[feature[tree, k]]) > border[tree, k]` and adds 2**k to the
    number of the leaf; a border of infinity stands for a level that is not there. Tree t's leaves
    are value[starts[t]:starts[t + 1]]. NaN is below every border, or above in the columns `above`.
    """

    method = ""  # importers write tables of trees
    feature: Array
    border: Array
    starts: Array
    value: Array
    #: For each column 1 if NaN is above every border.
    above: Array
    arity = Arity.AGGREGATE
    bound = Bound.COMPUTE
    largest_result = 1e34  # fitted numbers: none is near the end of a range

    def check(self) -> None:
        feature, border, starts = raw(self.feature, self.border, self.starts)
        tables = (feature, border, starts, self.value, self.above)
        kinds = [table.dtype.name for table in tables]
        if kinds != ["int32", "float32", "int32", "float64", "uint8"]:
            raise ParameterError("the tables of oblivious trees have dtypes of their own")
        fine = feature.ndim == 2 and feature.shape == border.shape and len(feature) > 0
        if not fine or feature.shape[1] > MOST_LEVELS or self.value.array.ndim != 2:
            raise ParameterError("a tree has up to 16 levels, each a feature and a border")
        if feature.min(initial=0) < 0 or feature.max(initial=0) >= len(self.above):
            raise ParameterError("a level asks about a column that is not there")
        if starts.shape != (len(feature) + 1,) or starts[0] or starts[-1] > len(self.value.array):
            raise ParameterError("every tree has a run of leaves")
        largest = (np.where(border < inf, 1, 0) << np.arange(feature.shape[1])).sum(axis=1)
        if np.any(np.diff(starts) <= largest):
            raise ParameterError("a tree has a leaf for all answers")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, self.name)
        expect(kind.dtype in FLOATS, f"{self.name} needs floats, got {kind}", "call as_float()")
        expect(kind.width == len(self.above), f"the trees read {len(self.above)} columns", "")
        return Vector(self.value.shape[1], "float64")

    def reference(self, x: Columns) -> Columns:
        x = x.astype(np.float32)
        (above,) = raw(self.above)
        x = np.where(np.isnan(x) & (above > 0), np.float32(inf), x)
        sums: NDArray[np.float64] = np.zeros((len(x), self.value.shape[1]))
        tables = zip(self.feature.array, self.border.array, self.starts.array[:-1], strict=True)
        bits = 1 << np.arange(self.feature.shape[1])
        for feature, border, start in tables:
            sums += self.value.array[start + ((x[:, feature] > border) * bits).sum(axis=1)]
        return sums

    def remark(self) -> str:
        return f"{len(self.border)} oblivious trees; from {_LEAST} rows on {ROWS} rows at a time"

    def kernel(self, e: Emitter, inputs: tuple[Column, ...], out: Column) -> None:
        (x,) = inputs
        (trees, depth), outputs = self.border.shape, self.value.shape[1]
        tables = LevelTables(self.feature, self.border, self.starts, self.value, self.above)
        shape = TreeShape(trees, len(self.above), outputs, tuple(range(depth)), outputs == 1)
        write(e, answered, x, out, tables, shape)


class LevelTables(NamedTuple):
    """The fitted numbers of the trees."""

    feature: Numbers
    border: Numbers
    starts: Numbers
    value: Numbers
    above: Numbers


class TreeShape(NamedTuple):
    """The numbers of trees, columns and outputs, the levels, and whether there is one output."""

    trees: int
    columns: int
    outputs: int
    levels: tuple[int, ...]
    single: bool


def answered(x: Numbers, out: Numbers, tables: LevelTables, shape: TreeShape) -> None:
    """The sums of all trees for every row of a block."""
    held = scratch("float32", ROWS * shape.columns)
    count = rows(x)
    if count < _LEAST:
        for i in range(count):
            row = read_row(x, i)
            for j in range(size(shape.columns)):
                held[j] = compared(row[j], tables.above[j])
            alone(held, write_row(out, i), tables, shape)
    else:
        totals = scratch("float64", ROWS * shape.outputs)
        for block in range((count + ROWS - 1) // ROWS):
            first = block * ROWS
            several = min(ROWS, count - first)
            for r in range(several):
                turned(read_row(x, first + r), r, held, tables, shape)
            together(held, totals, tables, shape)
            for r in range(several):
                sums = write_row(out, first + r)
                for o in range(size(shape.outputs)):
                    sums[o] = totals[r * size(shape.outputs) + o]


def turned(row: Numbers, r: int, held: Numbers, tables: LevelTables, shape: TreeShape) -> None:
    """Put a row's numbers beside those of the other rows of its block, column by column."""
    for j in range(size(shape.columns)):
        held[j * ROWS + r] = compared(row[j], tables.above[j])


def compared(value: Number, above: Number) -> Number:
    """The number that is compared with borders: NaN is below all of them, or above."""
    narrow = cast(value, "float32")
    return number(inf, "float32") if isnan(narrow) and above > 0 else narrow


class LevelQuestions(NamedTuple):
    """The questions of all trees, level by level."""

    feature: Numbers
    border: Numbers
    levels: tuple[int, ...]


def leaf_of(held: Numbers, row: int, apart: int, level: int, questions: LevelQuestions) -> Number:
    """The number of a tree's leaf for a row; the row's numbers are so many places apart."""
    leaf = 0
    for k in questions.levels:
        asked = held[cast(questions.feature[level + k], "int64") * apart + row]
        leaf = leaf | ((1 << k) if asked > questions.border[level + k] else 0)
    return leaf


def alone(held: Numbers, sums: Numbers, tables: LevelTables, shape: TreeShape) -> None:
    """The sums of all trees for one row."""
    questions = LevelQuestions(fitted(tables.feature), fitted(tables.border), shape.levels)
    starts, value = fitted(tables.starts), fitted(tables.value)
    outputs = size(shape.outputs)
    for o in range(outputs):
        sums[o] = 0.0
    total = 0.0
    for t in range(size(shape.trees)):
        level = t * size(len(shape.levels))
        leaf = cast(starts[t], "int64") + leaf_of(held, 0, 1, level, questions)
        if shape.single:
            total = total + value[leaf]
        else:
            for o in range(outputs):
                sums[o] += value[leaf * outputs + o]
    if shape.single:
        sums[0] = total


def together(held: Numbers, totals: Numbers, tables: LevelTables, shape: TreeShape) -> None:
    """The sums of all trees for a block of rows: the leaves' numbers of one tree at a time."""
    leaves = scratch("int32", ROWS)
    questions = LevelQuestions(fitted(tables.feature), fitted(tables.border), shape.levels)
    starts, value = fitted(tables.starts), fitted(tables.value)
    outputs = size(shape.outputs)
    for r in range(ROWS * outputs):
        totals[r] = 0.0
    for t in range(size(shape.trees)):
        level, start = t * size(len(shape.levels)), cast(starts[t], "int64")
        for r in range(ROWS):
            leaves[r] = cast(leaf_of(held, r, ROWS, level, questions), "int32")
        for r in range(ROWS):
            at = start + cast(leaves[r], "int64")
            if shape.single:
                totals[r] += value[at]
            else:
                for o in range(outputs):
                    totals[r * outputs + o] += value[at * outputs + o]
