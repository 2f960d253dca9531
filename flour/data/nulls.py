"""Nulls among words, in data of libraries for which there is one kind of missing value.

Arrow, polars, DuckDB and Parquet have null where frames of pandas have NaN or None, and programs
may tell these apart: an encoder that was fitted on NaN takes None for another category. A null is
NaN for programs that know NaN, as pandas reads such data; for others it is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.types import Category, Record, Scalar, Type, Vector
from flour.data.arrow_strings import CELLS, NAN, NONE


def knows_nan(nodes: Iterable[Node]) -> bool:
    """Whether an operator among these does with NaN among words what it does with no other."""
    return any(getattr(item.op, "knows_nan", False) for item in nodes)


class Nodes(Protocol):
    """A program."""

    def nodes(self) -> Iterable[Node]:
        """All of its nodes."""


class Program(Protocol):
    """What has a program."""

    @property
    def flow(self) -> Nodes:
        """The program as it was written: rules may have put its encoders into other operators."""


def knows_nan_of(plan: Program) -> Callable[[], bool]:
    """Asks a plan's program, and keeps neither: readers outlive plans that are dropped."""
    held = ref(plan)

    def ask() -> bool:
        plan = held()
        return plan is not None and knows_nan(plan.flow.nodes())

    return ask


class Nulls:
    """Makes NaN of a program's nulls among words, if it knows NaN."""

    __slots__ = ("_all", "_known", "_knows", "_words")

    def __init__(self, inputs: Mapping[str, Type], knows: Callable[[], bool] | None) -> None:
        """`knows` is asked once, when the first null has come."""
        self._knows, self._known = knows, None if knows is not None else False
        words: set[str] = set()
        self._all = False
        for name, kind in inputs.items():
            if isinstance(kind, Record):
                words.update(field for field, sub in kind.fields if _is_word(sub))
            self._all |= isinstance(kind, Vector) and kind.dtype == "string"
            if _is_word(kind):
                words.add(name)
        self._words = frozenset(words)

    def learn(self) -> None:
        """Ask now, as what is asked will be gone."""
        if self._words or self._all:
            self._is_nan()

    def of_frame(self, given: object) -> Any:
        """A frame, or its columns where nulls among words are to be NaN."""
        frame: Any = given
        names = [str(name) for name in getattr(frame, "column_names", None) or frame.columns]
        words = self._words.intersection(names) if len({*names}) == len(names) else ()
        lost = [name for name in words if _count(frame[name].null_count)]
        if self._known is False or not lost or not self._is_nan():
            return frame
        columns = {name: frame[name] for name in names}
        for name in lost:
            columns[name] = self._listed(columns[name])
        return columns

    def of_file(self, given: object) -> Any:
        """Rows of a file as dicts, or columns as lists or Arrow's arrays, with what nulls mean."""
        if self._known is False or not self._words:
            return given
        if isinstance(given, list):
            return [self._row(row) for row in given]
        if isinstance(given, dict):
            return {n: self._listed(v) if n in self._words else v for n, v in given.items()}
        return given

    def _row(self, row: object) -> object:
        lost = [n for n in self._words if row.get(n, "") is None] if isinstance(row, dict) else []
        if isinstance(row, dict) and lost and self._is_nan():
            return {**row, **dict.fromkeys(lost, np.nan)}
        return row

    def _listed(self, values: object) -> object:
        if isinstance(values, np.ndarray):
            return self.settled(values)
        take = getattr(values, "to_pylist", None) or getattr(values, "to_list", None)
        listed = values if take is None else take()
        if not isinstance(listed, list) or None not in listed or not self._is_nan():
            return values
        return self.settled(np.array([*listed, None], object)[:-1])

    def settled(self, data: object) -> Any:
        """Columns that came of nulls, with NaN for None where that is meant.

        Cells are changed in their place.
        """
        if self._known is False or not (self._words or self._all):
            return data
        if isinstance(data, dict):
            return {
                name: self.settled(part)
                if isinstance(part, dict) or self._all or name in self._words
                else part
                for name, part in data.items()
            }
        return self._array(data) if isinstance(data, np.ndarray) else data

    def _array(self, array: NDArray[Any]) -> NDArray[Any]:
        if array.dtype is CELLS:
            sizes = array["bytes"]
            if sizes.size and sizes.min() == NONE and self._is_nan():
                sizes[sizes == NONE] = NAN
        elif array.dtype == object:
            none = np.frompyfunc(lambda value: value is None, 1, 1)(array).astype(bool)
            if none.any() and self._is_nan():
                array = array.copy()
                array[none] = np.nan
        return array

    def _is_nan(self) -> bool:
        if self._known is None:
            self._known = self._knows is not None and self._knows()
        return self._known


def has_nulls(data: object) -> bool:
    """Whether this is a frame of a library with one kind of missing value."""
    kind = type(data)
    return (kind.__module__.partition(".")[0], kind.__name__) in _FRAMES


_FRAMES = {("polars", "DataFrame"), ("pyarrow", "Table"), ("pyarrow", "RecordBatch")}


def _count(found: int | Callable[[], int]) -> int:
    return found() if callable(found) else found


def _is_word(kind: Type) -> bool:
    return isinstance(kind, Scalar | Category) and kind.dtype == "string"
