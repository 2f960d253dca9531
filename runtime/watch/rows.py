"""The rows of a call as arrays by column: what sketches and segments read.

The distinct values of a column of objects, and columns of numbers that hold something else.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import InputError
from flour.core.types import Record, Type
from flour.data.arrow_strings import CELLS, as_texts
from flour.data.batch import Batch, Form
from flour.data.coerce import coerce
from flour.data.coerce_values import is_missing
from oven import Plan
from runtime.routing.blocks import rows_of
from runtime.routing.row import names_by_position

#: Rows whose places stay in the second cache, and the bits of an object's slot.
_BLOCK, _BITS = 1 << 14, 17
#: An odd number that spreads addresses: 2^64 divided by the golden ratio.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(64 - _BITS)


class _Scratch(threading.local):
    """Memory of a thread that it does not get anew for each block: its pages are there."""

    def __init__(self) -> None:
        self.owner = np.empty(1 << _BITS, np.int64)


_scratch = _Scratch()


def numbered_objects(values: NDArray[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """The number of each value among the distinct ones, and these in the order of appearance.

    Columns of words mostly have the same objects again and again. So a block's rows are first
    told apart by their objects' addresses, with numpy, and only one row of each object is looked up
    in a dictionary, which costs some fifty nanoseconds. All that is missing, however it is written,
    is None.
    """
    places, distinct = dict[Any, int](), list[Any]()
    codes = np.empty(len(values), np.int64)
    owner = _scratch.owner
    mostly_new = False
    for start in range(0, len(values), _BLOCK):
        part, out = values[start : start + _BLOCK], codes[start : start + _BLOCK]
        if mostly_new:  # each row has an object of its own
            out[:] = _looked_up(part, places, distinct)
            continue
        first, firsts = _first_of_same(np.ascontiguousarray(part), owner)
        mostly_new = len(firsts) > len(part) // 2
        numbers = np.empty(len(part), np.int64)
        numbers[firsts] = _looked_up(part[firsts], places, distinct)
        numbers.take(first, out=out, mode="clip")
    return codes, distinct


def _looked_up(
    values: NDArray[Any], places: dict[Any, int], distinct: list[Any]
) -> NDArray[np.int64]:
    listed = values.tolist()
    for each in dict.fromkeys(listed):
        if each in places:
            continue
        value = None if is_missing(each) else each
        places[each] = number = places.setdefault(value, len(distinct))
        if number == len(distinct):
            distinct.append(value)
    return np.fromiter(map(places.__getitem__, listed), np.int64, len(listed))


def _first_of_same(
    part: NDArray[Any], owner: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row a row that has the same object, and the rows that stand for others.

    `owner` has a place for each slot; what it held before does not matter.
    """
    rows = np.arange(len(part))
    # numpy gives no view of the addresses; the array outlives this copy of them.
    memory = (ctypes.c_uint64 * len(part)).from_address(part.ctypes.data)
    addresses = np.frombuffer(memoryview(memory), np.uint64)
    slots = addresses * _SPREAD
    slots >>= _SHIFT
    slots = slots.view(np.int64)
    owner[slots] = rows
    found = owner[slots]
    other = np.flatnonzero(addresses[found] != addresses)  # two objects in one slot
    found[other] = other
    return found, np.flatnonzero(found == rows)


def as_floats(values: NDArray[Any]) -> NDArray[Any]:
    """A column of numbers; what is no number in a column of objects is missing."""
    return values if values.dtype != object else np.array([_float(each) for each in values])


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # what is not taken raises
    except (TypeError, ValueError):
        return float("nan")


#: Columns by name. The columns of an array without names are called "0", "1", ...
Table = dict[str, NDArray[Any]]


def table_of(block: object, inputs: Mapping[str, Type]) -> Table:
    """Copies of a block's columns; none where the data has no columns, as documents have none."""
    if isinstance(block, np.ndarray) and block.ndim == 2:
        copied = block.T.copy()  # the caller may write into its array again
        return dict(zip(_names(inputs, len(copied)), copied, strict=True))
    if isinstance(block, dict):
        return {str(name): _column(values) for name, values in block.items()}
    if isinstance(block, list) and block and isinstance(block[0], dict):
        return {name: _column([row.get(name) for row in block]) for name in block[0]}
    if isinstance(block, list) and block and isinstance(block[0], list | tuple):
        names = _names(inputs, len(block[0]))
        return {n: _column(v) for n, v in zip(names, zip(*block, strict=True), strict=True)}
    return {}


def loose_table(
    block: object, inputs: Mapping[str, Type], wanted: Collection[str], rows: int
) -> Table:
    """The wanted columns of rows that may not be readable; what is no value is missing."""
    table, found = dict[str, Any](), list[Any]()
    with suppress(Exception):  # whatever it is that a client has sent
        table = table_of(block, inputs)
    if not all(name in table and table[name].shape == (rows,) for name in wanted):
        names = names_by_position(inputs)
        for form in ([block] if isinstance(block, Mapping) and rows == 1 else block, [block]):
            with suppress(Exception):
                found = found or rows_of(form, wanted, names) or []
        found = found if len(found) == rows else [{}] * rows
        table = {name: as_objects([row.get(name) for row in found]) for name in wanted}
    return {
        name: as_objects(each.tolist()) if each.dtype == object else each
        for name, each in table.items()
        if name in wanted
    }


def as_objects(values: Sequence[Any]) -> NDArray[Any]:
    """A column of values; lists and whatever else is no value are missing."""
    column = np.empty(len(values), object)
    for place, value in enumerate(values):
        inner = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
        column[place] = inner if isinstance(inner, str | int | float | np.generic) else None
    return column


def read_table(batch: Batch, inputs: Mapping[str, Type]) -> Table:
    """The columns of reference rows."""
    columns = batch.block if isinstance(batch.block, dict) else {}
    lengths = {name: len(each) for name, each in columns.items()}
    if len({*lengths.values()}) > 1:
        raise InputError(
            "columns of reference rows have as many rows each",
            found=", ".join(f"{name}: {rows:,}" for name, rows in lengths.items())[:200],
        )
    return table_of(taken(batch, inputs), inputs)


def taken(batch: Batch, inputs: Mapping[str, Type], places: NDArray[np.int64] | None = None) -> Any:
    """Copies of rows of a batch; those of frames and the like as the model's own columns."""
    block, rows = batch.block, batch.rows
    plain = isinstance(block, np.ndarray | list | tuple)
    if not plain and not (isinstance(block, dict) and batch.kind is not Form.GENERAL):
        block, rows = coerce(inputs, block)
        if len(inputs) == 1:
            (block,) = block.values()
    return take(block, np.arange(rows) if places is None else places)


def answers_of(plan: Plan, table: Table) -> dict[str, Any]:
    """A plan's answers to rows by column."""
    names = list(table)
    if names == [str(place) for place in range(len(names))]:
        return plan.run(np.column_stack([table[name] for name in names]))
    return plan.run(dict(table))


def _names(inputs: Mapping[str, Type], count: int) -> list[str]:
    only = next(iter(inputs.values())) if len(inputs) == 1 else None
    if isinstance(only, Record) and len(only.names) == count:
        return list(only.names)
    return [str(number) for number in range(count)]


def _column(values: object) -> NDArray[Any]:
    """A copy as floats or as objects."""
    found = np.array(values)
    if found.dtype.kind == "U" and not isinstance(values, np.ndarray):
        found = np.array(values, object)  # what is missing among words is no word
    if found.dtype.kind in "biuf":
        return found.astype(np.float64) if found.dtype.kind == "b" else found
    if found.dtype.kind == "O" and all(type(each) in {float, int, type(None)} for each in found):
        return found.astype(np.float64)
    return found.astype(object)


def take(block: object, places: NDArray[np.int64]) -> Any:
    """Copies of some rows of a block, in the block's form."""
    if isinstance(block, dict):
        return {name: take(part, places) for name, part in block.items()}
    if isinstance(block, list | tuple):
        return [block[place] for place in places]
    if not isinstance(block, np.ndarray):
        raise InputError(
            "rows of this kind are not watched", found=type(block).__name__, hint="pass a frame"
        )
    if block.dtype is CELLS:  # addresses in memory that goes with the call
        return as_texts(block[places])
    return block[places]


class Sample:
    """Rows drawn evenly from all that were added, at most so many."""

    def __init__(self, most: int, without: Collection[str] = ()) -> None:
        self._most, self._without = most, without
        self._rng = np.random.default_rng(0)
        self._keys = np.zeros(0)
        #: The rows by column; replaced, and never written into.
        self.table: Table = {}

    def hide(self, columns: Collection[str]) -> None:
        """Keep nothing of these columns, from now on and of what is here."""
        self._without = columns
        self.table = {name: each for name, each in self.table.items() if name not in columns}

    def fade(self) -> None:
        """Let all rows that come later go before those that are here."""
        self._keys = self._keys + 1.0

    def add(self, table: Table) -> None:
        """Keep the rows with the least random keys of all so far."""
        names = [name for name in table if name not in self._without]
        if names != [*self.table]:  # another form of rows: begin anew
            self.table, self._keys = {name: table[name][:0] for name in names}, np.zeros(0)
        rows = len(table[names[0]]) if names else 0
        keys = self._rng.random(rows)
        full = len(self._keys) == self._most
        places = np.flatnonzero(keys < self._keys.max()) if full else np.arange(rows)
        if not len(places):
            return
        keys = np.concatenate([self._keys, keys[places]])
        kept = np.argsort(keys)[: self._most]
        self._keys = keys[kept]
        self.table = {
            name: np.concatenate([self.table[name], table[name][places]])[kept] for name in names
        }
