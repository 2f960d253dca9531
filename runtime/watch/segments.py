"""Counts by segment: a segment is a combination of values of declared columns, or of buckets.

"country" is a column as it is, "age // 10" a column of numbers in buckets of ten. After `limit`
combinations, all others are counted in one cell, so that metrics stay bounded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError, nearest
from runtime.watch.rows import Table

#: Equal parts of 0 to 1 in which scores are counted.
SCORE_BINS = 10
OVERFLOW = "(other)"
#: Whole numbers within so many of each other are told apart without sorting.
_FEW = 1 << 12
_BUCKET = re.compile(r"\s*(.+?)\s*//\s*(\d+(?:\.\d+)?)\s*")


class Column(NamedTuple):
    """A declared column, or a bucket of it."""

    text: str
    name: str
    width: float

    @classmethod
    def parse(cls, text: str) -> Column:
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

    def codes(self, table: Table) -> tuple[NDArray[np.int64], list[str]]:
        """The number of each row's value among the distinct ones, and their texts."""
        values = table[self.name]
        if self.width:
            values = np.floor(np.asarray(values, np.float64) / self.width)
        codes, distinct = numbered(values)
        if self.width:
            distinct = [each * self.width for each in distinct]
        return codes, [each if isinstance(each, str) else f"{each:g}" for each in distinct]


def numbered(values: NDArray[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    """The number of each value among the distinct ones, and these; without sorting if it can."""
    if values.dtype == object:
        listed = values.tolist()
        places = {each: n for n, each in enumerate(dict.fromkeys(listed))}
        codes = np.fromiter(map(places.__getitem__, listed), np.int64, len(listed))
        return codes, [each if isinstance(each, str) else str(each) for each in places]
    if len(values):
        least, most = float(values.min()), float(values.max())
        few = most - least < _FEW and abs(least) < 1 << 53  # not so where NaN is
        whole = values.astype(np.int64) if few else None
        if whole is not None and (whole == values).all():
            return whole - int(least), list(range(int(least), int(most) + 1))
    distinct, codes = np.unique(values, return_inverse=True)
    return codes, distinct.tolist()


class Cell(NamedTuple):
    """What was counted of a segment."""

    segment: tuple[str, ...]
    rows: int
    errors: int
    scores: tuple[int, ...]
    labels: dict[str, int]


class Segments:
    """The cells of an endpoint. One thread at a time adds; any may read."""

    def __init__(self, columns: Sequence[str], known: Sequence[str], limit: int = 1000) -> None:
        self.columns = tuple(map(Column.parse, columns))
        for column in self.columns:
            if column.name not in known:
                raise ParameterError(
                    f"there is no column {column.name!r} to make segments of",
                    found="columns: " + ", ".join(known)[:200],
                    hint=nearest(column.name, known),
                )
        self._limit = limit
        self._cells: dict[tuple[str, ...], int] = {}
        self._rows = np.zeros(limit + 1, np.int64)
        self._errors = np.zeros(limit + 1, np.int64)
        self._scores = np.zeros((limit + 1) * SCORE_BINS, np.int64)
        self._labels: dict[int, Counter[str]] = {}

    def cells_of(self, table: Table) -> NDArray[np.int64]:
        """The cell of each row; the last cell is that of all segments beyond the limit."""
        codes, texts = self.columns[0].codes(table)
        every = [texts]
        for column in self.columns[1:]:
            more, texts = column.codes(table)
            codes = codes * len(texts) + more
            every.append(texts)
        sizes = [len(each) for each in every]
        size = int(np.prod(sizes))
        found = np.flatnonzero(np.bincount(codes, minlength=size)) if size < 1 << 16 else None
        if found is None:
            found, codes = np.unique(codes, return_inverse=True)
            return np.array([self._cell(every, sizes, int(code)) for code in found])[codes]
        cells = np.zeros(size, np.int64)
        cells[found] = [self._cell(every, sizes, int(code)) for code in found]
        return cells[codes]

    def _cell(self, texts: list[list[str]], sizes: list[int], code: int) -> int:
        places = np.unravel_index(code, sizes)
        segment = tuple(words[place] for words, place in zip(texts, places, strict=True))
        if segment not in self._cells and len(self._cells) >= self._limit:
            return self._limit
        return self._cells.setdefault(segment, len(self._cells))

    def add(
        self,
        table: Table,
        scores: NDArray[Any] | None = None,
        labels: NDArray[Any] | None = None,
        weight: int = 1,
    ) -> None:
        """Count rows with their answers, each as `weight` rows."""
        cells = self.cells_of(table)
        size = self._limit + 1
        self._rows += weight * np.bincount(cells, minlength=size)
        if scores is not None:
            known = scores == scores  # noqa: PLR0124 (NaN is in no part)
            parts = np.clip(scores[known] * SCORE_BINS, 0, SCORE_BINS - 1).astype(np.int64)
            both = np.bincount(cells[known] * SCORE_BINS + parts, minlength=size * SCORE_BINS)
            self._scores += weight * both
        if labels is not None:
            self._count_labels(cells, labels, weight)

    def _count_labels(self, cells: NDArray[np.int64], labels: NDArray[Any], weight: int) -> None:
        if labels.dtype == bool:
            codes, names = labels.astype(np.int64), ["False", "True"]
        else:
            codes, distinct = numbered(labels)
            names = [*map(str, distinct)]
        counts = np.bincount(cells * len(names) + codes)
        for place in np.flatnonzero(counts).tolist():
            cell, label = divmod(place, len(names))
            self._labels.setdefault(cell, Counter())[names[label]] += weight * int(counts[place])

    def add_errors(self, table: Table, weight: int = 1) -> None:
        """Count rows that were not answered."""
        counts = np.bincount(self.cells_of(table), minlength=self._limit + 1)
        self._rows += weight * counts
        self._errors += weight * counts

    def cells(self) -> list[Cell]:
        """Every segment that was seen, and the cell of all others where there is one."""
        named = [*self._cells.items()]
        if self._rows[self._limit]:
            named.append(((OVERFLOW,) * len(self.columns), self._limit))
        scores = self._scores.reshape(-1, SCORE_BINS)
        return [
            Cell(
                segment,
                int(self._rows[place]),
                int(self._errors[place]),
                tuple(scores[place].tolist()),
                dict(self._labels.get(place, {})),
            )
            for segment, place in named
        ]
