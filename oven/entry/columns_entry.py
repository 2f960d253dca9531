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

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from flour.core.node import Node
from flour.core.types import Category, Scalar, Text, Type, Vector
from flour.data.arrow_strings import CELLS, NONE
from flour.data.nulls import Nulls
from oven.codegen.stages import Stage
from oven.entry.array_entry import Call, decoding, layout, open_array_entry
from oven.entry.builtin import Contents, native_function
from oven.entry.forms import COLUMNS, NAMED
from oven.entry.lazy_entry import LazyEntry
from oven.entry.opaque_entry import open_opaque_entry
from oven.entry.record_entry import open_record_entry
from oven.entry.row_layout import Reading, Rows, rows_contents, rows_of
from oven.run.native_run import NativeRun

Steps = Sequence[NativeRun | Stage]
#: Which dimensions an array may have: bits of the table's word RANKS.
FLAT, COLUMN = 2, 4


def open_entry(
    inputs: Mapping[str, Type],
    steps: Steps,
    outputs: Sequence[Node],
    fallback: Call,
    nulls: Nulls | None = None,
) -> Call:
    """The entry of a plan: whatever it is handed goes in by the shortest way there is for it."""
    if (part := open_opaque_entry(inputs, steps, outputs, fallback)) is not None:
        return part

    def opened(otherwise: Call) -> Call:
        def arrays() -> Call:
            return open_columns_entry(inputs, steps, outputs, otherwise) or otherwise

        found = layout(inputs, steps, outputs)
        if found is None:
            made = arrays()
            return open_record_entry(inputs, steps, outputs, made, nulls) or made
        dtype = np.dtype(found.kind.dtype) if isinstance(found.kind, Vector) else None
        later = LazyEntry(arrays, otherwise, dtype)
        entry = open_array_entry(found, later)
        if entry is None:
            return otherwise
        later.behind(entry)
        return entry

    match [*inputs.values()]:
        case [Text(encoding) as kind] if encoding:
            return decoding(kind, fallback, opened)
    return opened(fallback)


def open_columns_entry(
    inputs: Mapping[str, Type],
    steps: Steps,
    outputs: Sequence[Node],
    fallback: Callable[[object], Any],
    ranks: Mapping[str, int] | None = None,
) -> Call | None:
    """The entry for arrays by name, if the plan can have one.

    `ranks` says, for who is strict, how many dimensions an input's array has, as FLAT or COLUMN.
    """
    columns = columns_of(inputs, steps, outputs, ranks or {})
    if columns is None:
        return None
    entry = native_function(COLUMNS, partial(columns_contents, columns, fallback))
    found = layout(inputs, steps, outputs)
    if entry is None or found is None or not isinstance(found.kind, Vector):
        return entry
    # The one array is read where it lies, if its rows lie one behind another.
    straight = open_array_entry(found, entry)
    assert straight is not None, "there can be entries"
    name = next(iter(inputs))
    words = {"LABEL": id(name), "ENTRY": id(straight), "FALLBACK": id(entry)}
    return native_function(NAMED, lambda: Contents(words, (name, straight, entry)))


def columns_of(
    inputs: Mapping[str, Type], steps: Steps, outputs: Sequence[Node], ranks: Mapping[str, int]
) -> Rows | None:
    """What the arrays are, of a plan that is native code from them to its answers."""
    return rows_of(inputs, steps, outputs, partial(_reading, ranks))


def _reading(ranks: Mapping[str, int], name: str, kind: Type | None) -> Reading | None:
    """How an array for this type is read; None where there is more to it."""
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


def columns_contents(found: Rows, fallback: Callable[[object], Any]) -> Contents:
    """What the table of the machine code for arrays says."""
    words = {"FALLBACK": id(fallback), "BARE": int(found.bare)}
    words |= {"OBJECT": id(np.dtype(object)), "CELLS": id(CELLS)}
    return rows_contents(found, words, fallback)
