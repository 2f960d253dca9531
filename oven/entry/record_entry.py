"""The entry of a plan that reads records: what of them it takes, and its table.

    call = plan.entry()
    label, probabilities = call({"age": 31, "city": "Graz"})        # a row, by name
    label, probabilities = call([31, "Graz"])                       # by position
    labels, probabilities = call([{"age": 31, "city": "Graz"}])     # a block; also a dict of lists

The machine code (RECORDS of oven.entry.forms) checks and converts every value as flour.data.coerce
does, into the rows that the stages read, and runs them. What it would have to think about goes to
Python, with the same answers and the errors. Arrays go through the entry for vectors, where the
plan has one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from flour.core.types import INTS, Category, Record, Scalar, Text, Type, Vector
from flour.data.arrow_strings import NONE
from flour.data.nulls import Nulls
from oven.codegen.ports import Port
from oven.entry.array_entry import Answers, Call, EntryLayout, open_array_entry
from oven.entry.builtin import Contents, native_function
from oven.entry.forms import RECORDS
from oven.entry.row_layout import Reading, RowLayout, rows_contents, rows_of
from oven.entry.tables import PlanSteps


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
    found = rows_of(plan, partial(_reading, NONE))
    if found is None or (len(plan.inputs) == 1 and not found.listed):
        return None
    arrays = _arrays(found, fallback) or fallback

    def contents(rows: RowLayout, otherwise: Call) -> Contents:
        words = {"FALLBACK": id(otherwise), "ARRAYS": id(arrays), "BY_POSITION": int(rows.listed)}
        return rows_contents(rows, words, otherwise, arrays)

    entry = native_function(RECORDS, partial(contents, found, fallback))
    if entry is None or nulls is None or nulls.idle:
        return entry
    asking = rows_of(plan, partial(_reading, 0))
    assert asking is not None, "it has one with None, too"
    settle, known = nulls.of_rows, entry
    return native_function(RECORDS, partial(contents, asking, lambda data: known(settle(data))))


def _reading(none: int, _: str, kind: Type | None) -> Reading | None:
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
