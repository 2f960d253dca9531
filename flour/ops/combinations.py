"""Tables of combinations of values (CatBoost's statistics of categories), by their hashes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import held, indexable_row, write
from flour.core.op import Arity, Array, Columns, Op
from flour.core.types import Type, Vector
from flour.core.words import Number, Numbers, cast, fitted, scratch, size, wrap_mul
from flour.ops.categorise import check_runs

#: The parts of a combination: a whole number; the answer of `>`, of `not <=`, of `==`.
VALUE, ABOVE, NOT_BELOW, EQUAL = range(4)
_FACTOR = 0x4906BA494954CB65
_FOLD = 29
#: More keys in one place of a hash table are no accident.
_MOST_KEYS = 64


class CombinationTables(Op):
    """For each table, the float32 numbers of the combination of values that a row has.

    Table t's combination is elements[element_starts[t]:element_starts[t + 1]], each a column, a
    kind and a number to compare with; from nothing, an element makes of hash h the hash
    M * (h + M * element) in 64 bits. The table has the keys keys[key_starts[t]:key_starts[t + 1]]
    and `widths[t]` numbers for each, in `values`; for all other hashes the numbers in `other`.
    """

    method = ""
    elements: Array
    element_starts: Array
    keys: Array
    key_starts: Array
    widths: Array
    values: Array
    other: Array
    arity = Arity.ONE_TO_MANY
    cuts = True
    answers = ("values", "other")

    def check(self) -> None:
        elements, widths = self.elements, self.widths.array
        check_runs(self.name, self.element_starts, len(elements))
        check_runs(self.name, self.key_starts, len(self.keys), self.widths)
        dtypes = [each.dtype.name for each in (elements, self.keys, self.values, self.other)]
        if dtypes != ["float64", "int64", "float32", "float32"] or elements.shape[1:] != (3,):
            raise ParameterError("the tables of combinations have dtypes of their own")
        counts = np.diff(self.key_starts.array)
        if widths.dtype != np.int64 or widths.min(initial=1) < 1:
            raise ParameterError("every key has a number")
        if self.other.shape != (widths.sum(),) or self.values.shape != (counts @ widths,):
            raise ParameterError("every key has a number in each column of its table")
        if (
            len(self.element_starts) != len(self.key_starts)
            or not np.isin(elements.array[:, 1], (VALUE, ABOVE, NOT_BELOW, EQUAL)).all()
        ):
            raise ParameterError("every table has a combination of known kinds")

    def infer(self, x: Type) -> Vector:
        kind, columns = vector(x, self.name), self.elements.array[:, 0]
        expect(kind.dtype == "float64", f"{self.name} needs float64, got {kind}")
        fine = columns.min(initial=0) >= 0 and columns.max(initial=-1) < kind.width
        expect(fine, f"a combination is of columns that are not there in {kind}")
        return Vector(len(self.other), "float32")

    def reference(self, x: Columns) -> Columns:
        parts = []
        for t, (start, end) in enumerate(pairwise(self.element_starts.array)):
            code = np.zeros(len(x), np.uint64)
            for column, kind, value in self.elements.array[start:end].tolist():
                made = _elements(x[:, int(column)], kind, value)
                code = combination(code, made)
            keys, values = self._table(t)
            order = np.argsort(keys, kind="stable")
            place = np.searchsorted(keys[order], code.view(np.int64))
            found = np.append(order, len(keys))[place]
            hit = np.append(keys, 0)[found] == code.view(np.int64)
            parts.append(values[np.where(hit & (found < len(keys)), found, len(keys))])
        return np.concatenate(parts, axis=1) if parts else np.empty((len(x), 0), np.float32)

    def _table(self, t: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """A table's keys, and a row for each, with that of all others behind them."""
        counts, widths = np.diff(self.key_starts.array), self.widths.array
        first = int((counts * widths)[:t].sum())
        keys = self.keys.array[slice(*self.key_starts.array[t : t + 2])]
        wide, before = int(widths[t]), int(widths[:t].sum())
        values = self.values.array[first : first + len(keys) * wide]
        others = self.other.array[before : before + wide]
        return keys, np.concatenate([values, others]).reshape(-1, wide)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        counts = len(self.widths), len(self.other)
        made = write(e, looked_up, indexable_row(e, x), self._layout(), *counts)
        return held(e, made, len(self.other))

    def _layout(self) -> HashedTables:
        """The keys of each table by places that their hashes name, and the numbers with them."""
        keys, values, places, tables = [], [], [], []
        key = number = place = 0
        for t, wide in enumerate(self.widths.array.tolist()):
            own, rows = self._table(t)
            mask = (1 << max(len(own), 1).bit_length()) - 1
            where = (own ^ (own >> _FOLD)) & mask
            order = np.argsort(where, kind="stable")
            counts = np.bincount(where, minlength=mask + 1)
            if counts.max() > _MOST_KEYS:
                raise ParameterError("these keys were made to share one place in a hash table")
            keys.append(own[order])
            values.append(rows[[*order, len(own)]].reshape(-1))
            places.append(np.cumsum([0, *counts]) + key)
            tables.append((place, mask, key, len(own), number, wide))
            key, number, place = key + len(own), number + rows.size, place + mask + 2
        parts = (np.concatenate([np.empty(0, np.int64), *each]) for each in (keys, places))
        found = [
            *parts,
            np.concatenate([np.empty(0, np.float32), *values]),
            np.array(tables, np.int64).reshape(-1),
            self.element_starts.array,
            self.elements.array.reshape(-1),
        ]
        return HashedTables._make(map(Array.of, found))


def combination(code: NDArray[np.uint64], element: NDArray[Any]) -> NDArray[np.uint64]:
    """The hashes of combinations with one element more."""
    factor = np.uint64(_FACTOR)
    return factor * (code + factor * element.astype(np.uint64))


def _elements(column: NDArray[np.float64], kind: float, value: float) -> NDArray[Any]:
    answers = {ABOVE: column > value, NOT_BELOW: ~(column <= value), EQUAL: column == value}
    made: NDArray[Any] = answers.get(int(kind), column).astype(np.int64)
    return made


class HashedTables(NamedTuple):
    """The fitted numbers of all tables; `tables` has six for each."""

    keys: Numbers
    places: Numbers
    values: Numbers
    tables: Numbers
    element_starts: Numbers
    elements: Numbers


def looked_up(x: Numbers, given: HashedTables, count: int, columns: int) -> Numbers:
    """The numbers that all tables have for a row."""
    out = scratch("float32", columns)
    tables, keys, values = fitted(given.tables), fitted(given.keys), fitted(given.values)
    places = fitted(given.places)
    done = 0
    for t in range(size(count)):
        code = combined(x, t, given)
        place, first, wide = tables[6 * t], tables[6 * t + 2], tables[6 * t + 5]
        at = place + ((code ^ (code >> _FOLD)) & tables[6 * t + 1])
        entry, end = first + tables[6 * t + 3], places[at + 1]
        for k in range(places[at], end):
            if keys[k] == code:
                entry = k
                break
        row = tables[6 * t + 4] + (entry - first) * wide
        for j in range(wide):
            out[done + j] = values[row + j]
        done += wide
    return out


def combined(x: Numbers, t: int, given: HashedTables) -> Number:
    """The hash of a row's combination of values."""
    starts, elements = fitted(given.element_starts), fitted(given.elements)
    code = 0
    for i in range(starts[t], starts[t + 1]):
        value, kind = x[cast(elements[3 * i], "int64")], elements[3 * i + 1]
        against = elements[3 * i + 2]
        element = cast(value, "int64")
        if kind == ABOVE:
            element = 1 if value > against else 0
        elif kind == NOT_BELOW:
            element = 0 if value <= against else 1
        elif kind == EQUAL:
            element = 1 if value == against else 0
        code = wrap_mul(code + wrap_mul(element, _FACTOR), _FACTOR)
    return code
