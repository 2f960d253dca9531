"""Counts by segment: a segment is a combination of values of declared columns, or of buckets.

"country" is a column as it is, "age // 10" a column of numbers in buckets of ten. After `limit`
combinations, all others are counted in one cell, so that metrics stay bounded.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError, nearest
from runtime.watch.rows import Table, as_floats, numbered_objects

#: Equal parts of 0 to 1 in which scores are counted.
SCORE_BINS = 10
OVERFLOW, MISSING = "(other)", "(missing)"
#: Whole numbers within so many of each other are told apart without sorting.
_FEW = 1 << 12
#: Combinations of values that have a place in a table, and labels that are told apart.
_MOST, _LABELS = 1 << 20, 100
#: Rows that are counted at a time: what is made of them stays in the second cache.
_BLOCK = 1 << 15
_BUCKET = re.compile(r"\s*(.+?)\s*//\s*(\d+(?:\.\d+)?)\s*")


class SegmentColumn(NamedTuple):
    """A declared column, or a bucket of it."""

    text: str
    name: str
    width: float

    @classmethod
    def parse(cls, text: str) -> SegmentColumn:
        """The column of "country" or "age // 10"."""
        found = _BUCKET.fullmatch(text)
        if found is None:
            return cls(text, text, 0.0)
        width = float(found[2])
        if width <= 0:
            raise ParameterError(
                "a bucket needs a width", where=text, found=found[2], hint='"age // 10"'
            )
        return cls(text, found[1], width)

    def values(self, table: Table, rows: int) -> NDArray[Any]:
        """Each row's value, or the lower end of its bucket; missing where there is no column."""
        values = table.get(self.name, np.full(rows, None, object))
        return np.floor(as_floats(values) / self.width) if self.width else values


class DistinctTexts:
    """The texts of the distinct values that were seen, up to `limit`, with stable numbers."""

    def __init__(self, limit: int, width: float = 0.0) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}
        self._limit, self._width = limit, width

    @property
    def size(self) -> int:
        """A power of two beyond the largest number, so that tables seldom have to grow."""
        return 1 << len(self.texts).bit_length()

    def codes(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The number of each value; those beyond the limit have the limit's."""
        codes, distinct = numbered(values, floored=self._width > 0 or values.dtype.kind in "iu")
        present = np.arange(len(distinct))
        if values.dtype != object:  # whole numbers between the least and the most
            present = np.flatnonzero(np.bincount(codes, minlength=len(distinct)))
        numbers = np.zeros(len(distinct), np.int64)
        numbers[present] = [self._number(distinct[place]) for place in present.tolist()]
        return numbers.take(codes, mode="clip")  # without looking whether they are inside

    def _number(self, value: object) -> int:
        if type(value) is str and value in self._places:
            return self._places[value]
        if self._width and isinstance(value, int | float):
            value *= self._width
        text = f"{value:.15g}" if isinstance(value, float) else str(value)
        if value is None or value != value:  # noqa: PLR0124 (NaN differs from itself)
            text = MISSING
        if text not in self._places and len(self.texts) < self._limit:
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places.get(text, self._limit)

    def text(self, number: int) -> str:
        """The text of a number."""
        return self.texts[number] if number < len(self.texts) else OVERFLOW


def numbered(values: NDArray[Any], *, floored: bool = False) -> tuple[NDArray[np.int64], list[Any]]:
    """The number of each value among the distinct ones, and these; without sorting if it can."""
    if values.dtype == object:
        codes, found = numbered_objects(values)
        return codes, [
            each if isinstance(each, str | float | None) else str(each) for each in found
        ]
    if len(values):
        least, most = float(values.min()), float(values.max())
        few = most - least < _FEW and abs(least) < 1 << 53  # not so where NaN is
        whole = values.astype(np.int64) if few else None
        if whole is not None and (floored or (whole == values).all()):
            whole -= int(least)
            return whole, list(range(int(least), int(most) + 1))
    distinct, codes = np.unique(values, return_inverse=True)
    return codes, distinct.tolist()


class SegmentCell(NamedTuple):
    """Counts of a segment."""

    segment: tuple[str, ...]
    rows: int
    errors: int
    scores: tuple[int, ...]
    labels: dict[str, int]
    seconds: float = 0.0
    """Seconds of computing its rows, where `costs` are watched; equal for all rows of a block."""
    latency: float | None = None
    """The mean seconds of the calls that were timed, which are of few rows."""


def rows_in(table: Table) -> int:
    """The number of rows a table has."""
    return len(next(iter(table.values()), ()))


class Segments:
    """The cells of an endpoint. One thread at a time adds; any may read."""

    def __init__(self, columns: Sequence[str], known: Sequence[str], limit: int = 1000) -> None:
        self.columns = tuple(map(SegmentColumn.parse, columns))
        for column in self.columns:
            if column.name not in known:
                raise ParameterError(
                    f"there is no column {column.name!r} to make segments of",
                    found="columns: " + ", ".join(known)[:200],
                    hint=nearest(column.name, known),
                )
        self._limit = limit
        self._values = tuple(DistinctTexts(limit, column.width) for column in self.columns)
        self._sizes: tuple[int, ...] = ()
        self._table = np.zeros(0, np.int64)
        self._cells: dict[tuple[str, ...], int] = {}
        self._rows = np.zeros(limit + 1, np.int64)
        self._errors = np.zeros(limit + 1, np.int64)
        self._scores = np.zeros((limit + 1) * SCORE_BINS, np.int64)
        self._seconds = np.zeros(limit + 1)
        self._latency, self._timed = np.zeros(limit + 1), np.zeros(limit + 1, np.int64)
        self._names = DistinctTexts(_LABELS)
        self._labels = np.zeros((limit + 1, 1), np.int64)

    def cells_of(self, table: Table) -> NDArray[np.int64]:
        """The cell of each row; the last cell is that of all segments beyond the limit."""
        rows = rows_in(table)
        codes, *others = (
            values.codes(column.values(table, rows))
            for column, values in zip(self.columns, self._values, strict=True)
        )
        sizes = tuple(values.size for values in self._values)
        for size, numbers in zip(sizes[1:], others, strict=True):
            codes *= size
            codes += numbers
        if math.prod(sizes) > _MOST:
            found, codes = np.unique(codes, return_inverse=True)
            return np.array([self._cell(sizes, int(code)) for code in found], np.int64)[codes]
        if sizes != self._sizes:
            self._sizes, self._table = sizes, np.full(math.prod(sizes), -1)
        cells = self._table.take(codes, mode="clip")
        if cells.size and cells.min() < 0:
            new = np.unique(codes[cells < 0])
            self._table[new] = [self._cell(sizes, int(code)) for code in new]
            cells = self._table[codes]
        return cells

    def _cell(self, sizes: tuple[int, ...], code: int) -> int:
        numbers = np.unravel_index(code, sizes)
        segment = tuple(
            values.text(int(number)) for values, number in zip(self._values, numbers, strict=True)
        )
        if segment not in self._cells and len(self._cells) >= self._limit:
            return self._limit
        return self._cells.setdefault(segment, len(self._cells))

    def add(
        self,
        table: Table,
        scores: NDArray[Any] | None = None,
        labels: NDArray[Any] | None = None,
        weight: int = 1,
        seconds: float = 0.0,
        latency: float = 0.0,
    ) -> None:
        """Count rows with their answers, each as `weight` rows.

        They took `seconds` to compute together; their call took `latency`, where it was timed.
        """
        rows = rows_in(table)
        for start in range(0, rows, _BLOCK):
            part = slice(start, start + _BLOCK)
            some = {name: each[part] for name, each in table.items()}
            cells = self.cells_of(some)
            counts = np.bincount(cells, minlength=self._limit + 1)
            self._rows += weight * counts
            if seconds:
                self._seconds += (weight * seconds / rows) * counts
            if latency:
                self._latency += latency * counts
                self._timed += counts
            if scores is not None:
                self._count_scores(cells, scores[part], weight)
            if labels is not None:
                self._count_labels(cells, labels[part], weight)

    def _count_scores(self, cells: NDArray[np.int64], scores: NDArray[Any], weight: int) -> None:
        parts = scores * SCORE_BINS
        np.maximum(np.minimum(parts, SCORE_BINS - 1, out=parts), 0, out=parts)
        known = parts == parts  # noqa: PLR0124 (NaN is in no part)
        places = cells * SCORE_BINS
        if not known.all():
            places, parts = places[known], parts[known]
        places += parts.astype(np.int64)
        counts = np.bincount(places, minlength=len(self._scores))
        self._scores += counts if weight == 1 else weight * counts

    def _count_labels(self, cells: NDArray[np.int64], labels: NDArray[Any], weight: int) -> None:
        if labels.dtype == bool:
            labels = np.array(["False", "True"], object)[labels.astype(np.int64)]
        codes = self._names.codes(labels)
        size, wide = self._names.size, self._labels.shape[1]
        if size > wide:
            self._labels = np.pad(self._labels, ((0, 0), (0, size - wide)))
        counts = np.bincount(cells * size + codes, minlength=self._labels.size)
        self._labels += weight * counts.reshape(self._labels.shape)

    def add_errors(self, table: Table, weight: int = 1) -> None:
        """Count rows that were not answered."""
        counts = np.bincount(self.cells_of(table), minlength=self._limit + 1)
        self._rows += weight * counts
        self._errors += weight * counts

    def cells(self) -> list[SegmentCell]:
        """Every segment that was seen, and the cell of all others where there is one."""
        named = [*self._cells.items()]
        if self._rows[self._limit]:
            named.append(((OVERFLOW,) * len(self.columns), self._limit))
        scores = self._scores.reshape(-1, SCORE_BINS)
        return [
            SegmentCell(
                segment,
                int(self._rows[place]),
                int(self._errors[place]),
                tuple(scores[place].tolist()),
                {
                    self._names.text(label): int(self._labels[place, label])
                    for label in np.flatnonzero(self._labels[place]).tolist()
                },
                float(self._seconds[place]),
                float(self._latency[place] / self._timed[place]) if self._timed[place] else None,
            )
            for segment, place in named
        ]
