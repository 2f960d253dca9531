"""Arrays by name as rows for native code, laid out by machine code before the rows are cut.

A block that several threads share is checked and laid out once, where it comes in, with strings as
UTF-8 beside the rows; chunks of it are then nothing but places. What the machine code does not take
is coerced and packed by Python, with the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.types import Text, Vector
from oven.codegen.ports import Port
from oven.codegen.stages import Value, is_text
from oven.codegen.string_cells import TextCells
from oven.entry.array_forms import packed_entry
from oven.entry.builtin import Contents, native_function
from oven.entry.columns_entry import columns_contents, columns_of
from oven.entry.row_layout import RowLayout
from oven.entry.tables import PlanSteps


class PackedRows(NamedTuple):
    """Rows as the stages read them: a column for each port."""

    columns: Mapping[Value, NDArray[Any]]
    rows: int


PackRows = Callable[[Any], PackedRows | None]

#: A type's flag: its objects are known to the collector, which making one may start.
_COLLECTED = 1 << 14


def open_row_packing(plan: PlanSteps) -> PackRows:
    """A function that lays out arrays for this plan; its answer is None for other data."""
    kinds = list(plan.inputs.values())
    plain = len(kinds) == 1 and isinstance(kinds[0], Vector) and kinds[0].dtype != "string"
    found = None if plain else columns_of(plan, {})
    if found is None or np.ndarray.__flags__ & _COLLECTED:
        return _nothing

    def contents() -> Contents:
        dtype = np.dtype(np.uint8)
        words, kept = columns_contents(found, _nothing)
        return Contents({**words, "DTYPE": id(dtype)}, (*kept, dtype))

    native = native_function(packed_entry, contents)
    if native is None:
        return _nothing
    name = next(iter(plan.inputs)) if kinds and isinstance(kinds[0], Text) and found.bare else None
    return partial(_laid, native, found, name)


def _nothing(_: object) -> None:
    return None


def _laid(
    native: Callable[[Any], Any], found: RowLayout, name: str | None, data: object
) -> PackedRows | None:
    if name is not None and type(data) is list:  # documents
        documents = np.empty(len(data), object)
        documents[:] = data
        data = documents
    made = native(data)
    if made is None:
        return None
    block, text = made
    rows = len(block) // found.row_bytes
    columns: dict[Value, NDArray[Any]] = {
        port: _view(port, block, text, rows, start, found.row_bytes)
        for port, start in zip(found.run.inputs, found.ports, strict=True)
        if isinstance(port, Port)
    }
    return PackedRows(columns, rows)


def _view(
    port: Port, block: NDArray[Any], text: NDArray[Any], rows: int, start: int, step: int
) -> NDArray[Any]:
    """One port's column, of rows that are `step` bytes apart."""
    kind = port.type
    width = kind.width if isinstance(kind, Vector) else 1
    words = is_text(kind)
    dtype = np.dtype(np.int64 if words else kind.dtype)  # type: ignore[union-attr]  # numbers have one
    flat = not words and not isinstance(kind, Vector)
    across = 2 * width if words else width
    shape = (rows,) if flat else (rows, across)
    strides = (step,) if flat else (step, dtype.itemsize)
    made = np.ndarray(shape, dtype, block.data, start, strides)
    if not words:
        return made
    held = made.view(TextCells)
    held.text = text
    return held
