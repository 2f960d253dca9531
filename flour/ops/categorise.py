"""Values of a fitted set to whole numbers: the first half of every categorical encoding.

Each column has a set of its own. Numbers are found by binary search; strings by hashing their
UTF-8 bytes into an open-addressed table whose hits are compared byte for byte. The codes are
parameters, so that an encoder folds its next steps (grouping rare categories, dropping one) into
them. A negative code means no category.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy import isnan
from numpy.typing import NDArray

from flour.core import native
from flour.core.check import expect, fitted, numeric
from flour.core.emission import Emitter, RowValue
from flour.core.errors import InputError, ParameterError
from flour.core.op import Array, Columns, Op, Table
from flour.core.types import FLOATS, INTS, Category, Scalar, Type, Vector, promote
from flour.core.words import Number, Numbers, cast, refuse, string, wrap_mul


def check_runs(who: str, starts: Array, count: int, *columns: Array) -> None:
    """Raise unless `starts` cuts `count` things into one run for each column."""
    cuts: Any = starts.array
    fine = cuts.ndim == 1 and cuts.dtype == np.int64 and len(cuts) > 0 and cuts[0] == 0
    if not fine or cuts[-1] != count or np.any(cuts[1:] < cuts[:-1]):
        raise ParameterError(f"{who}: the starts do not cut {count} entries into columns")
    for item in columns:
        if item.shape != (len(cuts) - 1,):
            raise ParameterError(f"{who} needs one value for each of {len(cuts) - 1} columns")


def ascends(values: Array, starts: Array, *, strictly: bool) -> bool:
    """True if the values of each column's run ascend (and are no NaN)."""
    flat: Any = values.array
    cuts: Any = starts.array
    if flat.ndim != 1:
        return False
    rises = np.ones(len(flat), bool)
    rises[1:] = flat[1:] > flat[:-1] if strictly else flat[1:] >= flat[:-1]
    rises[cuts[cuts < len(flat)]] = True
    return bool(rises.all() and not np.any(flat != flat))  # noqa: PLR0124 (the definition of NaN)


class Encoding(Op, abstract=True, cuts=True, by_column=True):
    """The checks and types that encoding numbers and encoding strings share."""

    def refuses_rows(self) -> bool:
        return bool(self.fields()["strict"])

    def _check(self, starts: Array, codes: Array, entries: int, *columns: Array) -> None:
        check_runs(self.name, starts, entries, *columns)
        if codes.shape != (entries,) or any(
            item.dtype != np.int64 for item in (codes, starts, *columns)
        ):
            raise ParameterError(f"{self.name} needs one int64 code for each entry")

    def _codes(self, kind: Type, columns: int) -> Vector | Scalar:
        """The type of the codes: one for each value."""
        width = kind.width if isinstance(kind, Vector) else 1
        fitted(columns, Vector(width), self.name)
        return Vector(width, "int64") if isinstance(kind, Vector) else Scalar("int64")


class Categorise(Encoding):
    """The code of each number among its column's values (int64): `missing` for NaN.

    Column j's values are values[starts[j]:starts[j + 1]], ascending, and codes go with them. A
    value that is not among them has the code `unknown`; with `strict` it is an error.
    """

    values: Array
    codes: Array
    starts: Array
    missing: Array
    unknown: Array
    strict: bool = False

    def check(self) -> None:
        self._check(self.starts, self.codes, self.values.array.size, self.missing, self.unknown)
        if not ascends(self.values, self.starts, strictly=True):
            raise ParameterError("categorise needs ascending values, each once, in every column")

    def infer(self, x: Type) -> Vector | Scalar:
        return self._codes(numeric(x, "categorise"), len(self.missing))

    def reference(self, x: Columns) -> Columns:
        if x.ndim == 1:
            return self.reference(x[:, None])[:, 0]
        wide = promote(x.dtype.name, self.values.dtype.name)
        codes = np.empty(x.shape, np.int64)
        for j in range(x.shape[1]):
            codes[:, j] = self._column(x[:, j].astype(wide), j)
        return codes

    def _column(self, x: NDArray[Any], j: int) -> NDArray[np.int64]:
        run = slice(*self.starts.array[j : j + 2])
        values = self.values.array[run].astype(x.dtype)
        index = np.searchsorted(values, x)
        padded = np.append(values, x.dtype.type(0))
        hit = (index < len(values)) & (padded[index] == x)
        codes = np.append(self.codes.array[run], 0)
        result = np.where(hit, codes[index], self.unknown.array[j])
        nan = x != x  # noqa: PLR0124 (the definition of NaN)
        result[nan] = self.missing.array[j]
        if self.strict:
            unknown = (~hit & ~nan) | (nan & (result == UNKNOWN))
            _complain(x, unknown, j)
        return result

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        values = native.FittedNumbers(self.values, promote(x.dtype, self.values.dtype.name))
        return native.columnwise(e, code_of, x, self, values, dtype="int64")


#: Native code reports an unknown value of a strict encoding by this code, which no category has.
UNKNOWN = -(2**62)
_SIGNED = (*FLOATS, *(dtype for dtype in INTS if not dtype.startswith("u")))


def code_of(x: Number, j: int, op: Any, values: Numbers) -> Number:
    """The code of a number among its column's values."""
    value = cast(x, values.dtype)
    low, end = op.starts[j], op.starts[j + 1]
    high = end
    if values.dtype in _SIGNED and low < high:
        # Look first where the value is if the categories are consecutive whole numbers.
        ahead = value - values[low]
        if ahead >= 0 and ahead < high - low:
            guess = low + cast(ahead, "int64")
            if values[guess] == value:
                low = guess
                high = guess
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    code = UNKNOWN if op.strict else op.unknown[j]
    if low < end and values[low] == value:
        code = op.codes[low]
    if values.dtype in FLOATS and isnan(value):
        code = op.missing[j]
    if op.strict and code == UNKNOWN:
        refuse()
    return code


def _complain(x: NDArray[Any], unknown: NDArray[np.bool_], j: int) -> None:
    if unknown.any():
        row = int(np.argmax(unknown))
        value = x[row].item() if hasattr(x[row], "item") else x[row]
        raise InputError(
            f"{value!r} is not a category that was seen in training",
            where=f"row {row}, column {j} of the encoder",
            found=type(value).__name__,
            hint="train the encoder with handle_unknown='ignore' to serve unseen values",
        )


# --- strings --------------------------------------------------------------------------------------

_BASIS = 0xCBF29CE484222325 - 2**64
_PRIME = 0x100000001B3
_FOLD = 29


class CategoriseText(Encoding):
    """The code of each string among its column's texts; `missing` for NaN, `none` for None.

    Column j's texts are texts[starts[j]:starts[j + 1]], and codes go with them (int64). A string
    that is not among them has the code `unknown`; with `strict` it is an error.
    """

    texts: Table
    codes: Array
    starts: Array
    none: Array
    missing: Array
    unknown: Array
    strict: bool = False

    def check(self) -> None:
        columns = (self.none, self.missing, self.unknown)
        self._check(self.starts, self.codes, len(self.texts), *columns)

    def infer(self, x: Type) -> Vector | Scalar:
        fine = isinstance(x, Vector | Scalar | Category) and x.dtype == "string"
        expect(fine, f"categorise_text needs strings, got {x}", "categorise() finds numbers")
        return self._codes(x, len(self.none))

    def reference(self, x: Columns) -> Columns:
        if x.ndim == 1:
            return self.reference(x[:, None])[:, 0]
        codes = np.empty(x.shape, np.int64)
        texts, all_codes, cuts = self.texts.to_list(), self.codes.array.tolist(), self.starts.array
        for j in range(x.shape[1]):
            run = slice(*cuts[j : j + 2])
            # Reversed, so that the first of equal texts wins, as in the hash table.
            code_of = dict(zip(texts[run][::-1], all_codes[run][::-1], strict=True))
            codes[:, j] = [self._code(value, code_of, j) for value in x[:, j]]
            if self.strict:
                _complain(x[:, j], codes[:, j] == UNKNOWN, j)
        return codes

    def known_missing(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """In which columns NaN has a code that None and unknown strings have not; and None one."""
        missing, none, unknown = self.missing.array, self.none.array, self.unknown.array
        nan = (missing != none) & (missing != unknown)
        return nan, (none != unknown) & (none != UNKNOWN)

    def _code(self, value: object, code_of: dict[str, int], j: int) -> int:
        if value is None:
            return int(self.none.array[j])
        if not isinstance(value, str):
            return int(self.missing.array[j])
        return code_of.get(value, UNKNOWN if self.strict else int(self.unknown.array[j]))

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        tables = hash_tables(self.texts, self.starts)
        return native.columnwise(e, code_of_text, x, self, tables, dtype="int64")


def code_of_text(cell: Number, j: int, op: Any, tables: HashTables) -> Number:
    """The code of a string among its column's texts."""
    text, length = string(cell)
    code = UNKNOWN if op.strict else op.unknown[j]
    if length < 0:
        code = op.none[j] if length == -1 else op.missing[j]
    else:
        number = text_number(text, length, tables, j)
        if number >= 0:
            code = op.codes[number]
    if op.strict and code == UNKNOWN:
        refuse()
    return code


class HashTables(NamedTuple):
    """An open-addressed table of texts for each column.

    A slot holds the number of a text, or -1. Tables are at least half empty, so every search ends.
    `first` has the first slot of each table, and `masks` its size less one.
    """

    slots: Numbers
    first: Numbers
    masks: Numbers
    offsets: Numbers
    data: Numbers


def text_number(text: Numbers, length: int, tables: HashTables, j: int) -> Number:
    """The number of a text in column j's table; -1 for one that is not there."""
    first, mask = tables.first[j], tables.masks[j]
    code = _BASIS
    for b in range(length):
        code = wrap_mul(code ^ text[b], _PRIME)
    slot = (code ^ (code >> _FOLD)) & mask
    found = -1
    entry = tables.slots[first + slot]
    while entry >= 0:
        start = tables.offsets[entry]
        if tables.offsets[entry + 1] - start == length:
            position = 0
            while position < length and text[position] == tables.data[start + position]:
                position += 1
            if position == length:
                found = entry
                break
        slot = (slot + 1) & mask
        entry = tables.slots[first + slot]
    return found


def hash_tables(texts: Table, starts: Array) -> HashTables:
    """A table for each column's run of texts."""
    cuts = starts.array.tolist()
    masks = [(1 << (2 * max(end - start, 1) - 1).bit_length()) - 1 for start, end in pairwise(cuts)]
    first = np.cumsum([0, *(mask + 1 for mask in masks)])
    slots = np.full(max(int(first[-1]), 1), -1, np.int64)
    raw, ends, steps = texts.data.tobytes(), texts.offsets.tolist(), 0
    for j, mask in enumerate(masks):
        for entry in range(cuts[j], cuts[j + 1]):
            slot = hash_of(raw[ends[entry] : ends[entry + 1]]) & mask
            while slots[first[j] + slot] >= 0:
                slot = (slot + 1) & mask
                steps += 1
            if steps > 64 * len(texts) + 4096:
                raise ParameterError("these strings were made to share one place in a hash table")
            slots[first[j] + slot] = entry
    tables = map(Array.of, (slots, first[:-1], np.array(masks, np.int64)))
    return HashTables._make([*tables, *texts.blobs()])


def hash_of(text: bytes) -> int:
    """FNV-1a over the bytes, folded; as native code computes it, in wrapping int64."""
    code = _BASIS
    for byte in text:
        code = ((code ^ byte) * _PRIME + 2**63) % 2**64 - 2**63
    return code ^ (code >> _FOLD)


def flatten(runs: Sequence[Sequence[Any]], dtype: Any = None) -> tuple[NDArray[Any], Array]:
    """The runs one after the other, and where each starts."""
    starts = np.cumsum([0, *map(len, runs)]).astype(np.int64)
    parts = [np.asarray(run, dtype) for run in runs]
    flat = np.concatenate(parts) if parts else np.empty(0, dtype)
    return flat, Array.of(starts)
