"""From an encoder's categories and any columns to their codes: the first step of every encoder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from flour.core.check import is_string
from flour.core.types import Record, Vector
from flour.language.adapters import SAMPLE, Importer
from flour.language.flow import Flow
from flour.ops.categorise import UNKNOWN, Categorise, CategoriseText, flatten
from flour.ops.impute import EITHER, NAN, NONE, TEXT, ImputeText
from flour.ops.structure import TakeText


class Coding(NamedTuple):
    """The code of each category of a column, and of any other value (None: that is an error)."""

    codes: Any
    unknown: int | None = -1


class _EncodedColumn(NamedTuple):
    """A column of the input by its number, whether it holds text, its categories and codes."""

    number: int
    text: bool
    entries: list[Any]
    codes: list[int]
    none: int
    missing: int
    unknown: int


def codes_of(
    x: Flow, categories: Sequence[Any], codings: Sequence[Coding], to: Importer, *, strict: bool
) -> Flow:
    """The code of every column of x, numbers and strings alike, as one int64 vector."""
    kinds = text_columns(x)
    to.need(
        len(kinds) == len(categories),
        f"the encoder was fitted on {len(categories)} columns, {len(kinds)} reach it",
    )
    columns = [_column(j, text, categories[j], codings[j], to) for j, text in enumerate(kinds)]
    parts = []
    for text, group in groupby(columns, lambda column: column.text):
        run = list(group)
        part = pick(x, [column.number for column in run])
        part, run = _unimputed(part, run)
        known = _of_codes(part, run, strict=strict) if text else None
        codes = (_texts if text else _numbers)(run, strict=strict)(part) if known is None else known
        parts.append(codes if isinstance(codes.type, Vector) else codes.as_vector())
    return parts[0].concat(*parts[1:]) if len(parts) > 1 else parts[0]


def _unimputed(part: Flow, run: list[_EncodedColumn]) -> tuple[Flow, list[_EncodedColumn]]:
    """The strings before an imputer filled them, and codes that do the same.

    The code of a filled string is that of the text it is filled with, so the text itself need not
    be written.
    """
    op = part.node.op
    if not isinstance(op, ImputeText):
        return part, run
    return part.input(0), [
        _imputing(column, op, value) for column, value in zip(run, op.values, strict=True)
    ]


def _of_codes(part: Flow, run: list[_EncodedColumn], *, strict: bool) -> Flow | None:
    """The codes of strings that are looked up by other codes, which then need not be written."""
    op = part.node.op
    if not isinstance(op, TakeText) or len(run) > 1:
        return None
    known = dict(zip(run[0].entries, run[0].codes, strict=True))
    codes = [known.get(text, run[0].unknown) for text in op.table.to_list()]
    if strict and UNKNOWN in codes:
        return None
    return part.input(0).take(np.array(codes, np.int64))


def _imputing(column: _EncodedColumn, op: ImputeText, value: str) -> _EncodedColumn:
    codes = dict(zip(column.entries, column.codes, strict=True))
    fill = codes.get(value, column.unknown)
    if op.marker == TEXT:
        codes[op.text[0]] = fill
        return column._replace(entries=list(codes), codes=list(codes.values()))
    none = fill if op.marker in (NONE, EITHER) else column.none
    missing = fill if op.marker in (NAN, EITHER) else column.missing
    return column._replace(none=none, missing=missing)


def text_columns(x: Flow) -> list[bool]:
    """For each column of x, whether it holds strings."""
    if isinstance(x.type, Record):
        return [is_string(kind) for _, kind in x.type.fields]
    if isinstance(x.type, Vector):
        return [x.type.dtype == "string"] * x.type.width
    return [is_string(x.type)]


def pick(x: Flow, numbers: Sequence[int]) -> Flow:
    """Columns of a record or vector by number, as one vector; a single value as it is."""
    if isinstance(x.type, Record):
        return x.columns([x.type.names[j] for j in numbers])
    if isinstance(x.type, Vector):
        whole = list(numbers) == list(range(x.type.width))
        return x if whole else x.select(list(numbers))
    return x


def _column(j: int, text: bool, categories: Any, coding: Coding, to: Importer) -> _EncodedColumn:  # noqa: FBT001 (a fact of the column)
    """One column's categories apart from the missing ones, which have codes of their own."""
    lost = UNKNOWN if coding.unknown is None else coding.unknown
    none = missing = lost
    entries: list[Any] = []
    codes: list[int] = []
    plain = [v.item() if isinstance(v, np.generic) else v for v in categories]
    for value, code in zip(plain, np.asarray(coding.codes).tolist(), strict=True):
        if value is None:
            none = code
        elif value != value:  # noqa: PLR0124 (the definition of NaN)
            missing = code
        else:
            entries.append(value)
            codes.append(code)
    if not text:
        # A column of numbers has one way to be missing: NaN, which None is read as.
        to.need(
            lost in (none, missing) or none == missing,
            "a column of numbers cannot tell None from NaN",
            "replace one of them before encoding",
        )
        missing = missing if none == lost else none
        entries, codes = _ascending(entries, codes, to)
    else:
        fine = all(isinstance(value, str) for value in entries)
        to.need(fine, f"the categories of column {j} are not strings, its values are")
    return _EncodedColumn(j, text, entries, codes, none, missing, lost)


def _ascending(entries: list[Any], codes: list[int], to: Importer) -> tuple[list[Any], list[int]]:
    fine = all(isinstance(value, int | float) for value in entries)
    to.need(fine, "the categories are not numbers, the column's values are", SAMPLE)
    order = sorted(range(len(entries)), key=entries.__getitem__)
    return [entries[i] for i in order], [codes[i] for i in order]


def _numbers(run: Sequence[_EncodedColumn], *, strict: bool) -> Categorise:
    whole = all(type(value) is int for column in run for value in column.entries)
    values, starts = flatten([column.entries for column in run], np.int64 if whole else np.float64)
    return Categorise(
        values=values,
        codes=flatten([column.codes for column in run], np.int64)[0],
        starts=starts,
        missing=np.array([column.missing for column in run], np.int64),
        unknown=np.array([column.unknown for column in run], np.int64),
        strict=strict,
    )


def _texts(run: Sequence[_EncodedColumn], *, strict: bool) -> CategoriseText:
    codes, starts = flatten([column.codes for column in run], np.int64)
    return CategoriseText(
        texts=[text for column in run for text in column.entries],
        codes=codes,
        starts=starts,
        none=np.array([column.none for column in run], np.int64),
        missing=np.array([column.missing for column in run], np.int64),
        unknown=np.array([column.unknown for column in run], np.int64),
        strict=strict,
    )
