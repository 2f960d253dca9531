"""Sketches of reference rows by column, and counters of a window in the same bins.

A column of numbers is kept as the counts between its quantiles, and below and above all of them,
where the reference has none; one of words as the counts of its most frequent words.
Both count what is missing, and words also what the reference has never seen.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import InputError
from runtime.watch.rows import Table, as_floats, numbered_objects

#: Bins of a column of numbers, and words of a column of words that have a bin of their own.
BINS, WORDS = 12, 50
#: Rows whose comparisons stay in the first cache.
_BLOCK = 4096

Counts = NDArray[np.int64]


class NumbersSketch(NamedTuple):
    """A column of numbers: the upper ends of all bins but the last, and the reference's counts.

    The first bin is of what is less than the reference's least number, the last of what is more
    than its most.
    """

    edges: NDArray[np.float64]
    counts: Counts
    missing: int
    #: The ends of the reference; None where it has no number.
    least: float | None = None
    most: float | None = None

    @classmethod
    def of(cls, values: NDArray[Any]) -> NumbersSketch:
        """The sketch of a column, with as many rows in each bin as ties allow."""
        known = values[~np.isnan(values)].astype(np.float64)
        levels = np.arange(1, BINS) / BINS
        edges = np.unique(np.quantile(known, levels, method="lower")) if len(known) else known
        finite = known[np.isfinite(known)]
        ends = (float(finite.min()), float(finite.max())) if len(finite) else (None, None)
        edges = _with_ends(edges, *ends)
        return cls(edges, *NumbersSketch(edges, np.zeros(0, np.int64), 0).counted(values), *ends)

    def counted(self, values: NDArray[Any]) -> tuple[Counts, int]:
        """The number of values each bin has, and how many are missing.

        An edge is compared with all values at once: a vectorised comparison of 4,096 values takes a
        fraction of a nanosecond for each, and a binary search of each value some thirty.
        """
        values = as_floats(values)
        below = np.zeros(len(self.edges) + 2, np.int64)
        for start in range(0, len(values), _BLOCK):
            part = values[start : start + _BLOCK]
            for place, edge in enumerate(self.edges, 1):
                below[place] += np.count_nonzero(part <= edge)
            below[-1] += np.count_nonzero(part == part)  # noqa: PLR0124 (NaN differs from itself)
        return np.diff(below), len(values) - int(below[-1])

    def bins(self, values: NDArray[Any]) -> Counts:
        """The bin of each value; behind all, that of missing ones."""
        values = as_floats(values)
        missing, found = np.isnan(values), np.searchsorted(self.edges, values)
        return np.where(missing, len(self.edges) + 1, found)


class WordsSketch(NamedTuple):
    """A column of words: the most frequent ones, counts of these, of other known ones, of unseen.

    `known` are all words of the reference, as far as it has no more than a few thousand.
    """

    top: tuple[str, ...]
    known: frozenset[str]
    counts: Counts
    missing: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> WordsSketch:
        """The sketch of a column."""
        codes, distinct = numbered_objects(values)
        numbers = np.bincount(codes, minlength=len(distinct)).tolist()
        found = Counter[str]()
        for word, count in zip(distinct, numbers, strict=True):
            if word is not None:
                found[str(word)] += count
        top = tuple(word for word, _ in found.most_common(WORDS))
        known = frozenset(word for word, _ in found.most_common(100 * WORDS))
        counts, missing = WordsSketch(top, known, np.zeros(0, np.int64), 0).counted(values)
        return cls(top, known, counts, missing)

    def counted(self, values: NDArray[Any]) -> tuple[Counts, int]:
        """The number of times each frequent word, another known one, and an unseen one is there."""
        codes, distinct = numbered_objects(values.astype(object, copy=False))
        found, missing = np.bincount(codes, minlength=len(distinct)).tolist(), 0
        places = {word: place for place, word in enumerate(self.top)}
        counts = np.zeros(len(self.top) + 2, np.int64)
        for word, count in zip(distinct, found, strict=True):
            if word is None:
                missing += count
                continue
            text = str(word)
            other = len(self.top) + (text not in self.known)
            counts[places.get(text, other)] += count
        return counts, missing

    def bins(self, values: NDArray[Any]) -> Counts:
        """The bin of each value; behind all, that of missing ones."""
        codes, distinct = numbered_objects(values.astype(object, copy=False))
        size, top = len(self.top), {word: place for place, word in enumerate(self.top)}
        places = {**dict.fromkeys(self.known, size), **top}
        bins = [size + 2 if e is None else places.get(str(e), size + 1) for e in distinct]
        return np.array(bins, np.int64)[codes]


Sketch = NumbersSketch | WordsSketch


def _with_ends(
    edges: NDArray[np.float64], least: float | None, most: float | None
) -> NDArray[np.float64]:
    """The ends of bins, with one below the least number and one at the most."""
    if least is None or most is None:
        return edges
    return np.unique([*edges, np.nextafter(least, -np.inf), most])


class Reference:
    """The sketches of reference rows, by column; data, which JSON holds."""

    def __init__(self, columns: Mapping[str, Sketch]) -> None:
        self.columns = dict(columns)

    @classmethod
    def of(cls, table: Table) -> Reference:
        """The sketches of these columns."""
        return cls(
            {
                name: WordsSketch.of(values) if values.dtype == object else NumbersSketch.of(values)
                for name, values in table.items()
            }
        )

    def ends(self) -> dict[str, NDArray[Any]]:
        """The least and the most of each column of numbers."""
        return {
            name: np.array([each.least, each.most])
            for name, each in self.columns.items()
            if isinstance(each, NumbersSketch) and each.least is not None
        }

    def to_data(self) -> dict[str, Any]:
        """The sketches as plain data."""
        return {name: _plain(each) for name, each in self.columns.items()}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Reference:
        """The sketches of `to_data`."""
        try:
            return cls({name: _sketch(each) for name, each in data.items()})
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as problem:
            raise InputError(
                "this holds no sketches of reference rows",
                found=str(problem)[:80],
                hint="they are what Reference.to_data or Reference.to_json gave",
            ) from problem

    def to_json(self) -> str:
        """The sketches as text."""
        return json.dumps(self.to_data())

    @classmethod
    def from_json(cls, text: str) -> Reference:
        """The sketches of `to_json`."""
        try:
            data = json.loads(text)
        except ValueError as problem:
            raise InputError(
                "this text holds no sketches of reference rows", found=str(problem)[:80]
            ) from problem
        return cls.from_data(data)


def _plain(sketch: Sketch) -> dict[str, Any]:
    same = {"counts": sketch.counts.tolist(), "missing": sketch.missing}
    if isinstance(sketch, NumbersSketch):
        # An infinite edge is text, as JSON has no such number.
        edges = [each if math.isfinite(each) else str(each) for each in sketch.edges.tolist()]
        ends = {"least": sketch.least, "most": sketch.most}
        return {"edges": edges, **ends, **same}
    return {"top": list(sketch.top), "known": sorted(sketch.known), **same}


def _sketch(data: Mapping[str, Any]) -> Sketch:
    counts, missing = np.array(data["counts"], np.int64), int(data["missing"])
    if counts.ndim != 1 or (counts < 0).any() or missing < 0:
        raise ValueError("counts that are none")
    if "edges" in data:
        edges = np.array([float(each) for each in data["edges"]], np.float64)
        if len(counts) != len(edges) + 1 or not (np.diff(edges) > 0).all():
            raise ValueError("edges that do not rise, or without counts")
        ends = tuple(None if data.get(n) is None else float(data[n]) for n in ("least", "most"))
        new = _with_ends(edges, *ends)
        if len(new) == len(edges) + 2:  # of a former release, without bins beyond the ends
            counts, edges = np.array([0, *counts, 0]), new
        if len(new) != len(edges) or np.isnan(new).any():
            raise ValueError("ends that are not those of the edges")
        return NumbersSketch(edges, counts, missing, *ends)
    top, known = (tuple(map(_text, data[name])) for name in ("top", "known"))
    if len(counts) != len(top) + 2:
        raise ValueError("words without counts")
    return WordsSketch(top, frozenset(known), counts, missing)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("words that are no texts")
    return value
