"""Entries for arrays by name: what a plan's inputs have to be, and the tables of their machine
code.

    call = plan.entry()
    labels, probabilities = call({"age": ages, "city": cities})     # (n,) or (n, 1)
    labels, probabilities = call({"X": rows})                       # (n, k)

It is what callers have who think in columns, or serve ONNX models by their inputs' names. Numbers
come in the program's own dtype, strings as objects or as numpy's own characters; the machine code
(COLUMNS of oven.entry.forms) hands everything else on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from flour.core.types import Category, Scalar, Text, Type, Vector
from flour.data.arrow_strings import CELLS, NONE
from flour.data.nulls import Nulls
from oven.entry.array_entry import Call, decoding, layout, open_array_entry
from oven.entry.builtin import Contents, NativeTable, native_function
from oven.entry.forms import COLUMNS, NAMED
from oven.entry.generator import FALLBACK
from oven.entry.opaque_entry import open_opaque_entry
from oven.entry.record_entry import open_record_entry
from oven.entry.row_layout import Reading, RowLayout, rows_contents, rows_of
from oven.entry.tables import PlanSteps

#: Which dimensions an array may have: bits of the table's word RANKS.
FLAT, COLUMN = 2, 4


def open_entry(plan: PlanSteps, fallback: Call, nulls: Nulls | None = None) -> Call:
    """The entry of a plan: whatever it is handed goes in by the shortest way there is for it."""
    if (part := open_opaque_entry(plan, fallback)) is not None:
        return part

    def opened(otherwise: Call) -> Call:
        def arrays() -> Call:
            return open_columns_entry(plan, otherwise) or otherwise

        found = layout(plan)
        if found is None:
            made = arrays()
            return open_record_entry(plan, made, nulls) or made
        dtype = np.dtype(found.kind.dtype) if isinstance(found.kind, Vector) else None
        later = LazyEntry(arrays, otherwise, dtype)
        entry = open_array_entry(found, later)
        if entry is None:
            return otherwise
        later.behind(entry)
        return entry

    match [*plan.inputs.values()]:
        case [Text(encoding) as kind] if encoding:
            return decoding(kind, fallback, opened)
    return opened(fallback)


def open_columns_entry(
    plan: PlanSteps, fallback: Callable[[object], Any], ranks: Mapping[str, int] | None = None
) -> Call | None:
    """The entry for arrays by name, if the plan can have one.

    `ranks` says, for who is strict, how many dimensions an input's array has, as FLAT or COLUMN.
    """
    columns = columns_of(plan, ranks or {})
    if columns is None:
        return None
    entry = native_function(COLUMNS, partial(columns_contents, columns, fallback))
    found = layout(plan)
    if entry is None or found is None or not isinstance(found.kind, Vector):
        return entry
    # The one array is read where it lies, if its rows lie one behind another.
    straight = open_array_entry(found, entry)
    assert straight is not None, "there can be entries"
    name = next(iter(plan.inputs))
    words = {"LABEL": id(name), "ENTRY": id(straight), "FALLBACK": id(entry)}
    return native_function(NAMED, lambda: Contents(words, (name, straight, entry)))


def columns_of(plan: PlanSteps, ranks: Mapping[str, int]) -> RowLayout | None:
    """The arrays that come in, of a plan that is native code from them to its answers."""
    return rows_of(plan, partial(_reading, ranks))


def _reading(ranks: Mapping[str, int], name: str, kind: Type | None) -> Reading | None:
    """The reading of an array for this type; None where there is more to it."""
    read, width, dtype, allowed = "SKIP", 1, "object", FLAT | COLUMN
    match kind:
        case None:
            pass
        case Text():
            read = "TEXT"
        case Scalar("string") | Category("string"):
            read = "STRING"
        case Scalar(dtype) | Category(dtype):
            read = "NUMBER"
        case Vector(width, "string", sparse=False) if width:
            read, allowed = "STRING", COLUMN
        case Vector(width, dtype, sparse=False) if width:
            read, allowed = "NUMBER", COLUMN
        case _:
            return None
    made = np.dtype(dtype)  # one of numpy's own, which live as long as it does
    more = {"ACROSS": width, "BYTES": made.itemsize, "DTYPE": id(made)}
    more["RANKS"] = ranks.get(name, allowed)
    if read == "STRING":
        more["LOW"] = NONE  # what None is among words
    return Reading(read, more, width, read in {"STRING", "TEXT"})


def columns_contents(found: RowLayout, fallback: Callable[[object], Any]) -> Contents:
    """The table of the machine code for arrays."""
    words = {"FALLBACK": id(fallback), "BARE": int(found.bare)}
    words |= {"OBJECT": id(np.dtype(object)), "CELLS": id(CELLS)}
    return rows_contents(found, words, fallback)


class LazyEntry:
    """A way in that is made when it is first taken.

    An array of numbers of another dtype than the entry's goes on to the fallback, which it would
    come to all the same.
    """

    __slots__ = ("__weakref__", "_dtype", "_fallback", "_made", "_make", "_table")

    def __init__(
        self, make: Callable[[], Call], fallback: Call, dtype: np.dtype[Any] | None = None
    ) -> None:
        self._make, self._fallback, self._dtype = make, fallback, dtype
        self._made: Call | None = None
        self._table: weakref.ref[NativeTable] | None = None

    def behind(self, entry: Any) -> None:
        """Be replaced in this entry's table as soon as there is something to go there."""
        # Weakly: the table keeps what it names, and a circle would outlive the plan.
        self._table = weakref.ref(entry.__self__)

    def __call__(self, data: object) -> Any:
        """Answers of the real entry."""
        if self._dtype is not None and isinstance(data, np.ndarray) and data.dtype != self._dtype:
            return self._fallback(data)
        return (self._made or self._settled())(data)

    def _settled(self) -> Call:
        """The real one; of two threads both may make it, and either is as good."""
        made = self._make()
        self._made = made
        table = None if self._table is None else self._table()
        if table is not None:
            # Kept beside this one, which calls may be on their way to.
            table.kept = (*table.kept, made)
            table[table.code.words.index(FALLBACK)] = id(made)
        return made
