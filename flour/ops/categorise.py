"""Values of a fitted set to whole numbers: the first half of every categorical encoding.

Each column has a set of its own. Numbers are found by binary search; strings by hashing their
UTF-8 bytes into an open-addressed table whose hits are compared byte for byte. The codes are
parameters, so that an encoder folds its next steps (grouping rare categories, dropping one) into
them. A negative code means no category.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, fitted, numeric
from flour.core.emission import Emitter, RowValue, ScalarValue
from flour.core.errors import InputError, ParameterError
from flour.core.op import Array, Columns, Op, Table
from flour.core.types import Category, Scalar, Type, Vector, promote


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
    """Whether the values of each column's run ascend (and are no NaN)."""
    flat: Any = values.array
    cuts: Any = starts.array
    if flat.ndim != 1:
        return False
    rises = np.ones(len(flat), bool)
    rises[1:] = flat[1:] > flat[:-1] if strictly else flat[1:] >= flat[:-1]
    rises[cuts[cuts < len(flat)]] = True
    return bool(rises.all() and not np.any(flat != flat))  # noqa: PLR0124 (the definition of NaN)


class Encoding(Op, abstract=True):
    """The checks and types that encoding numbers and encoding strings share."""

    cuts = True
    by_column = True

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
        kind = numeric(x, "categorise")
        return self._codes(kind, len(self.missing))

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

    def structure(self) -> tuple[object, ...]:
        return (self.values.dtype.name, self.strict)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        wide = promote(x.dtype, self.values.dtype.name)

        def code(j: str, v: str) -> str:
            value = e.let(e.cast(v, x.dtype, wide), wide).expr
            low = e.var(e.at(self.starts, j), "lo")
            end = e.let(e.at(self.starts, f"{j} + 1"), "int64").expr
            high = e.var(end, "hi")
            if wide.startswith(("float", "int")):
                self._guess(e, value, low, high, wide)
            with e.block(f"while {low} < {high}:"):
                middle = e.let(f"({low} + {high}) >> 1", "int64").expr
                with e.block(f"if {e.at(self.values, middle, wide)} < {value}:"):
                    e.line(f"{low} = {middle} + 1")
                with e.block("else:"):
                    e.line(f"{high} = {middle}")
            result = e.var(str(UNKNOWN) if self.strict else e.at(self.unknown, j))
            hit = f"{low} < {end} and {e.at(self.values, low, wide)} == {value}"
            with e.block(f"if {hit}:"):
                e.line(f"{result} = {e.at(self.codes, low)}")
            if wide.startswith("float"):
                with e.block(f"if {value} != {value}:"):
                    e.line(f"{result} = {e.at(self.missing, j)}")
            return _settled(e, result, strict=self.strict)

        return _each(e, x, code)

    def _guess(self, e: Emitter, value: str, low: str, high: str, wide: str) -> None:
        """Look first at the index the value has if the categories are consecutive whole numbers."""
        with e.block(f"if {low} < {high}:"):
            ahead = e.let(f"{value} - {e.at(self.values, low, wide)}", wide).expr
            with e.block(f"if {ahead} >= 0 and {ahead} < {high} - {low}:"):
                guess = e.let(f"{low} + int64({ahead})", "int64").expr
                with e.block(f"if {e.at(self.values, guess, wide)} == {value}:"):
                    e.line(f"{low} = {high} = {guess}")


def _each(e: Emitter, x: RowValue, code: Callable[[str, str], str]) -> RowValue:
    """The code of every value of a vector, or of the one of a scalar."""
    if isinstance(x, ScalarValue):
        return e.let(code("0", x.expr), "int64")
    return e.map(code, x, dtype="int64", width=x.width)


#: Native code reports an unknown value of a strict encoding by this code, which no category has.
UNKNOWN = -(2**62)


def _settled(e: Emitter, code: str, *, strict: bool) -> str:
    """The code; with `strict`, an unknown value ends the call with a failure."""
    if strict:
        with e.block(f"if {code} == {UNKNOWN}:"):
            e.line("return 1")
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

    def structure(self) -> tuple[object, ...]:
        return (self.strict,)

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        slots, first, mask = hash_tables(self.texts, self.starts)

        def code(j: str, v: str) -> str:
            cell = e.let(v, "int64").expr
            where, length = (e.var(f"ld_int64({cell}, {half})") for half in (0, 1))
            result = e.var(str(UNKNOWN) if self.strict else e.at(self.unknown, j))
            with e.block(f"if {length} < 0:"):
                none, missing = e.at(self.none, j), e.at(self.missing, j)
                e.line(f"{result} = {none} if {length} == -1 else {missing}")
            with e.block("else:"):
                table = e.address(slots)
                start, limit = e.at(first, j), e.at(mask, j)
                number = find_text(e, self.texts, where, length, f"{table} + 8 * {start}", limit)
                with e.block(f"if {number} >= 0:"):
                    e.line(f"{result} = {e.at(self.codes, number)}")
            return _settled(e, result, strict=self.strict)

        return _each(e, x, code)


def find_text(e: Emitter, texts: Table, where: str, length: str, table: str, mask: str) -> str:
    """Emit a look-up of bytes in a hash table; the local holds the text's number, or -1."""
    offsets, data = (e.address(blob) for blob in texts.blobs())
    code, table, mask = e.var(str(_BASIS), "h"), e.var(table, "t"), e.var(mask, "m")
    with e.loop(length) as b:
        e.line(f"{code} = wrap_mul({code} ^ int64(ld_uint8({where}, {b})), {_PRIME})")
    slot, found = e.var(f"({code} ^ ({code} >> {_FOLD})) & {mask}"), e.var("-1")
    entry = e.var(f"ldc_int64({table}, {slot})")
    with e.block(f"while {entry} >= 0:"):
        start = e.let(f"{data} + ldc_int64({offsets}, {entry})", "int64").expr
        size = f"{data} + ldc_int64({offsets}, {entry} + 1) - {start}"
        with e.block(f"if {size} == {length}:"):
            position = e.var("0")
            same = f"ld_uint8({where}, {position}) == ldc_uint8({start}, {position})"
            with e.block(f"while {position} < {length} and {same}:"):
                e.line(f"{position} += 1")
            with e.block(f"if {position} == {length}:"):
                e.line(f"{found} = {entry}")
                e.line("break")
        e.line(f"{slot} = ({slot} + 1) & {mask}")
        e.line(f"{entry} = ldc_int64({table}, {slot})")
    return found


def hash_tables(texts: Table, starts: Array) -> tuple[Array, Array, Array]:
    """One open-addressed table per column: (slots, the first slot of each table, its mask).

    A slot holds the number of a text, or -1. Tables are at least half empty, so every search ends.
    """
    cuts = starts.array.tolist()
    masks = [_table_size(end - start) - 1 for start, end in pairwise(cuts)]
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
    return Array.of(slots), Array.of(first[:-1]), Array.of(np.array(masks, np.int64))


def _table_size(entries: int) -> int:
    return 1 << (2 * max(entries, 1) - 1).bit_length()


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
