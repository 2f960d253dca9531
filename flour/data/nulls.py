"""Nulls among words: which of the missing values that a program may tell apart they are.

Frames of pandas have NaN or None among words, and an encoder that was fitted on NaN takes None for
another category. Arrow, polars, DuckDB and Parquet have null only: it is NaN in columns whose
encoders know NaN, as pandas reads such data, and None in others. JSON has null only, too, and so
have Python's dicts and lists, but for programs that know both, None can be written there: it is NaN
in columns whose encoders know NaN and not None. Arrays and frames of pandas stay as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise, repeat
from typing import Any, NamedTuple, Protocol
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.raw_columns import SEVERAL
from flour.core.source import Source
from flour.core.types import Category, Record, Scalar, Type, Vector, width_of
from flour.data.arrow_strings import CELLS, NAN, NONE
from flour.data.frames import object_array

Data = Any


class Known(NamedTuple):
    """The columns whose encoders know NaN, and those where they know None."""

    nan: frozenset[str] = frozenset()
    none: frozenset[str] = frozenset()


def known_missing(nodes: Iterable[Node]) -> Known:
    """Return the raw columns in which a program's operators on words know NaN, and None."""
    nan: set[str] = set()
    none: set[str] = set()
    for item in nodes:
        ask = getattr(item.op, "known_missing", None)
        if ask is not None:
            columns = _raw(item.inputs[0])
            for found, known in zip((nan, none), ask(), strict=True):
                marks = np.broadcast_to(known, len(columns))
                found.update(*(names for names, mark in zip(columns, marks, strict=True) if mark))
    return Known(frozenset(nan), frozenset(none))


def _raw(item: Node) -> list[set[str]]:
    """The raw columns that each column of a value is made of."""
    width = width_of(item.type)
    if isinstance(item.op, Source):
        kind = item.type
        names = kind.names if isinstance(kind, Record) else [item.op.label] * width
        return [{name} for name in names]
    parts = [_raw(source) for source in item.inputs]
    starts = np.cumsum([0, *map(len, parts)])
    numbers = [np.arange(start, end) for start, end in pairwise(starts)]
    raw = [names for part in parts for names in part]
    made = item.op.made_of(width, numbers, [source.type for source in item.inputs])
    every = set().union(*raw)
    return [raw[at] if at >= 0 else every if at == SEVERAL else set() for at in made]


class HasNodes(Protocol):
    """A program."""

    def nodes(self) -> Iterable[Node]:
        """All of its nodes."""


class Program(Protocol):
    """Anything with a `flow` attribute."""

    @property
    def flow(self) -> HasNodes:
        """The program as it was written: rules may have put its encoders into other operators."""


def known_missing_of(plan: Program) -> Callable[[], Known]:
    """Asks a plan's program, and keeps neither: readers outlive plans that are dropped."""
    held = ref(plan)

    def ask() -> Known:
        plan = held()
        return Known() if plan is None else known_missing(plan.flow.nodes())

    return ask


class Nulls:
    """Makes NaN of a program's nulls among words, in columns where that is meant."""

    __slots__ = ("_ask", "_inputs", "_known", "_names", "_order", "_words", "idle")

    def __init__(self, inputs: Mapping[str, Type], ask: Callable[[], Known] | None) -> None:
        """`ask` is called once, when the first null has come, or the first block of rows."""
        self._ask, self._known = ask, None if ask is not None else Known()
        words: set[str] = set()
        #: The columns of rows that are lists.
        self._order: list[str] = []
        for name, kind in inputs.items():
            fields = kind.fields if isinstance(kind, Record) else [(name, kind)]
            words.update(
                field
                for field, sub in fields
                if isinstance(sub, Scalar | Category | Vector) and sub.dtype == "string"
            )
            self._order += [field for field, sub in fields for _ in range(width_of(sub))]
        self._inputs, self._words = frozenset(inputs), frozenset(words)
        self._names = self._words | self._inputs
        #: True if all nulls stay as they are.
        self.idle = not self._words or self._known is not None

    def learn(self) -> Known:
        """Ask now, as what is asked will be gone."""
        if self._known is None:
            self._known = self._ask() if self._ask is not None and self._words else Known()
            # Nulls of other columns stay as they are, so nobody looks for them again.
            self._words &= self._known.nan
            self._names, self.idle = self._words | self._inputs, not self._words
        return self._known

    def of_frame(self, given: object) -> Any:
        """A frame, or its columns where nulls among words are to be NaN."""
        frame: Any = given
        names = [str(name) for name in getattr(frame, "column_names", None) or frame.columns]
        words = self._words.intersection(names) if len({*names}) == len(names) else ()
        lost = [] if self.idle else [name for name in words if _count(frame[name].null_count)]
        nan = self.learn().nan.intersection(lost) if lost else ()
        if not nan:
            return frame
        columns = {name: frame[name] for name in names}
        return {name: self._listed(v, name) if name in nan else v for name, v in columns.items()}

    def _listed(self, values: object, name: str) -> object:
        take = getattr(values, "to_pylist", None) or getattr(values, "to_list", None)
        listed: Any = values if take is None else take()
        return self._array(object_array(listed), name)

    def of_file(self, data: object) -> Any:
        """Rows of a file: dicts, lists, or columns as arrays."""
        return self.settled(self.of_rows(data))

    def of_rows(self, data: Data, depth: int = 0) -> Any:
        """Python's own dicts and lists, in which JSON's null is None."""
        if self.idle or type(data) not in _PLAIN or depth > _DEEPEST:
            return data
        if type(data) is dict:
            changed: dict[str, Any] = {}
            row = data.copy()  # looking at values may run code that changes the data
            for name in self._names & row.keys():
                value = row[name]
                if value is None or type(value) in _PLAIN:
                    found = self._value(name, value, depth)
                    if found is not value:
                        changed[name] = found
            return {**row, **changed} if changed else data
        if data and type(data[0]) in _PLAIN:
            return self._of_each(data, depth)
        if len(self._order) == 1:
            return self._value(self._order[0], data, depth)
        if len(self._order) != len(data) or not any(map(operator.is_, data, repeat(None))):
            return data
        pairs = zip(self._order, data, strict=True)
        return [self._value(name, None) if value is None else value for name, value in pairs]

    def _of_each(self, data: Data, depth: int) -> Any:
        """Several rows: whether a null may be NaN is asked before they are looked at."""
        if len(data) > 1 and not self.learn().nan:
            return data
        rows = [self.of_rows(row, depth + 1) for row in data]
        return rows if any(map(operator.is_not, rows, data)) else data

    def _value(self, name: str, value: Data, depth: int = 0) -> Any:
        """A value, a column, or what stands under an input's name."""
        if name not in self._words or depth > _DEEPEST:
            return self.of_rows(value, depth + 1)
        if value is None:
            known = self.learn()
            return np.nan if name in known.nan and name not in known.none else None
        if type(value) not in _PLAIN or type(value) is dict:
            return value
        if value and type(value[0]) in _PLAIN:
            rows = [self._value(name, row, depth + 1) for row in value]
            return rows if any(map(operator.is_not, rows, value)) else value
        if not any(each is None for each in value):
            return value
        missing = self._value(name, None)
        return value if missing is None else [missing if each is None else each for each in value]

    def settled(self, data: object, name: str = "", *, spoken: bool = False) -> Any:
        """Columns that came of nulls, with NaN for None where that is meant.

        Cells are changed in their place. In JSON, where None can be `spoken` of, it stays what
        encoders know.
        """
        if self.idle:
            return data
        if isinstance(data, dict):
            return {each: self.settled(p, each, spoken=spoken) for each, p in data.items()}
        name = name or self._order[0]  # of a program's only input
        known = isinstance(data, np.ndarray) and name in self._words
        if not known or (spoken and name in self.learn().none):
            return data
        return self._array(data, name)

    def _array(self, array: Data, name: str) -> NDArray[Any]:
        if array.dtype is CELLS:
            sizes = array["bytes"]
            if sizes.size and sizes.min() == NONE and name in self.learn().nan:
                sizes[sizes == NONE] = NAN
        elif array.dtype == object:
            none = np.frompyfunc(lambda value: value is None, 1, 1)(array).astype(bool)
            if none.any() and name in self.learn().nan:
                array = array.copy()
                array[none] = np.nan
        return array  # type: ignore[no-any-return]


#: Rows are nested less deeply; what is nested more is refused by whoever reads it.
_DEEPEST = 16
_PLAIN: frozenset[type] = frozenset({dict, list, tuple})


def has_nulls(data: object) -> bool:
    """True if this is a frame of a library with one kind of missing value."""
    kind = type(data)
    return (kind.__module__.partition(".")[0], kind.__name__) in _FRAMES


_FRAMES = {("polars", "DataFrame"), ("pyarrow", "Table"), ("pyarrow", "RecordBatch")}


def _count(found: int | Callable[[], int]) -> int:
    return found() if callable(found) else found
