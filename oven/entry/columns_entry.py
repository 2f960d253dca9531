"""Entries for records and for arrays by name: what they take, and the tables of their machine code.

    call = plan.entry()
    label, probabilities = call({"age": 31, "city": "Graz"})        # a row, by name
    label, probabilities = call([31, "Graz"])                       # by position
    labels, probabilities = call([{"age": 31, "city": "Graz"}])     # a block; also a dict of lists

For records the machine code (records_entry of oven.entry.forms) checks and converts every value as
flour.data.coerce does, into the rows that the stages read, and runs them. What it would have to
think about goes to Python, with the same answers and the errors.

    call = plan.entry()
    labels, probabilities = call({"age": ages, "city": cities})     # (n,) or (n, 1)
    labels, probabilities = call({"X": rows})                       # (n, k)

Arrays by name are what callers have who think in columns, or serve ONNX models by their inputs'
names. Numbers come in the program's own dtype, strings as objects or as numpy's own characters; the
machine code (columns_entry of oven.entry.array_forms) hands everything else on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from flour.core.types import INTS, Category, Record, Scalar, Text, Type, Vector
from flour.data.arrow_strings import CELLS, NONE
from flour.data.nulls import Nulls
from oven.codegen.ports import Port
from oven.entry.array_entry import Answers, Call, EntryLayout, decoding, layout, open_array_entry
from oven.entry.array_forms import columns_entry
from oven.entry.builtin import Contents, NativeTable, native_function
from oven.entry.forms import named_entry, records_entry
from oven.entry.generator import FALLBACK
from oven.entry.opaque_entry import open_opaque_entry
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
    entry = native_function(columns_entry, partial(columns_contents, columns, fallback))
    found = layout(plan)
    if entry is None or found is None or not isinstance(found.kind, Vector):
        return entry
    # The one array is read where it lies, if its rows lie one behind another.
    straight = open_array_entry(found, entry)
    assert straight is not None, "there can be entries"
    name = next(iter(plan.inputs))
    words = {"LABEL": id(name), "ENTRY": id(straight), "FALLBACK": id(entry)}
    return native_function(named_entry, lambda: Contents(words, (name, straight, entry)))


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


def open_record_entry(plan: PlanSteps, fallback: Call, nulls: Nulls | None = None) -> Call | None:
    """The entry of a plan over records, or over several single columns, if it can have one.

    Where None among words may stand for NaN, it goes to `nulls`, and then to an entry of its own.
    """
    digits = [name for name, kind in _fields(plan.inputs) if kind == Category(digits=True)]
    if digits:
        return _spelling(digits, fallback, lambda slow: _opened(plan, slow, nulls))
    return _opened(plan, fallback, nulls)


def _fields(inputs: Mapping[str, Type]) -> list[tuple[str, Type]]:
    found = (k.fields if isinstance(k, Record) else ((n, k),) for n, k in inputs.items())
    return [field for fields in found for field in fields]


def _spelling(
    names: Sequence[str], slow: Call, opened: Callable[[Call], Call | None]
) -> Call | None:
    """The entry that `opened` makes; whole numbers in these columns become strings ahead."""
    entry: weakref.ref[Call] | None = None  # the entry holds what is called here

    def call(data: object) -> Answers:
        made = entry() if entry is not None else None
        if made is None or type(data) is not dict:
            return slow(data)
        spelt = {n: str(int(v)) for n in names if isinstance(v := data.get(n), int)}
        return made({**data, **spelt}) if spelt else slow(data)

    found = opened(call)
    entry = None if found is None else weakref.ref(found)
    return found


def _opened(plan: PlanSteps, fallback: Call, nulls: Nulls | None) -> Call | None:
    found = rows_of(plan, partial(_record_reading, NONE))
    if found is None or (len(plan.inputs) == 1 and not found.listed):
        return None
    arrays = _arrays(found, fallback) or fallback

    def contents(rows: RowLayout, otherwise: Call) -> Contents:
        words = {"FALLBACK": id(otherwise), "ARRAYS": id(arrays), "COLUMNS": id(fallback)}
        words["BY_POSITION"] = int(rows.listed)
        return rows_contents(rows, words, otherwise, arrays, fallback)

    entry = native_function(records_entry, partial(contents, found, fallback))
    if entry is None or nulls is None or nulls.idle:
        return entry
    asking = rows_of(plan, partial(_record_reading, 0))
    assert asking is not None, "it has one with None, too"
    settle, known = nulls.of_rows, entry
    return native_function(
        records_entry, partial(contents, asking, lambda data: known(settle(data)))
    )


def _record_reading(none: int, _: str, kind: Type | None) -> Reading | None:
    """The reading of a value of this type; None where there is more to it.

    `none` is the length of a cell for None among words; 0 where None is not read.
    """
    match kind:
        case None:
            return Reading("SKIP", {})
        case Text():
            return Reading("TEXT", {}, text=True)
        case Scalar(dtype) | Category(dtype) if dtype in _READS:
            return Reading(_READS[dtype], {"LOW": none}, text=dtype == "string")
        case Scalar("bool") | Category("bool"):
            return Reading("WHOLE", {"BYTES": 1, "LOW": 0, "HIGH": 1})
        case Scalar(dtype) | Category(dtype) if dtype in INTS:
            info = np.iinfo(dtype)
            bounds = {"LOW": int(info.min), "HIGH": min(int(info.max), 2**63 - 1)}
            return Reading("WHOLE", {"BYTES": info.bits // 8, **bounds})
    return None


_READS = {"string": "STRING", "float64": "FLOAT64", "float32": "FLOAT32"}


def _arrays(found: RowLayout, fallback: Call) -> Call | None:
    """The entry for rows of float64, where a record's columns are just that."""
    (port, *more), fields = found.run.inputs, tuple(found.fields.values())
    if more or not found.listed or found.run.rooms or not isinstance(port, Port):
        return None
    plain = all(field.reading.read == "FLOAT64" for field in fields)
    if not plain or port.fields != tuple(found.fields):
        return None
    return open_array_entry(EntryLayout(found.run, Vector(len(fields)), found.outputs), fallback)
