"""New values of the columns that may change, each with what it costs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError, are_texts, nearest
from flour.core.types import Text
from oven.explain.counterfactuals.columns import ReadColumns
from oven.explain.counterfactuals.raw_row import RawRow
from oven.explain.counterfactuals.wanted import Numbers, bounds

#: The values of a column that is read in an unknown way, and integers that are all tried.
GRID, FEW = 33, 256
#: The largest number that is looked at.
LARGEST = 1e30


class Range(NamedTuple):
    """A column of numbers: its old value, its bounds, and the distance that costs 1."""

    old: float
    low: float
    high: float
    scale: float

    def costs(self, values: object) -> Numbers:
        """The costs of new values; one in a missing value's place costs 1."""
        far = np.abs(np.asarray(values, np.float64) - self.old) / self.scale
        return np.where(np.isnan(far), 1.0, far)


class Candidates:
    """Candidates of a row: each unit, a column or a word of one, with the values it may take."""

    def __init__(
        self,
        row: RawRow,
        free: Sequence[str],
        within: Mapping[str, Any] | None,
        training: Mapping[str, Any],
    ) -> None:
        self.row, self.within, self.training = row, dict(within or {}), training.get("columns", {})
        self.free = list(dict.fromkeys(free))
        for where, names in (("free", self.free), ("within", self.within)):
            for name in names:
                if name not in row.places:
                    hint = nearest(name, row.places) or f"columns are {[*row.places][:12]}"
                    found = repr(name)[:80]
                    raise _wrong("there is no such column", where, found, hint)
                if name not in self.free:
                    raise _wrong(f"{name!r} may not change", where, None, "name it in free, too")
        #: The columns of numbers that may have any value between their bounds.
        self.ranges = {name: self._range(name) for name in self.free if self._is_number(name)}
        #: Columns, or words in documents; then by candidate its unit, value and cost.
        self.units: list[tuple[str, str]] = []
        self.unit: NDArray[np.int64] = np.zeros(0, np.int64)
        self.values: NDArray[Any] = np.zeros(0, object)
        self.costs: Numbers = np.zeros(0)
        #: True if no other values have to be looked at; the columns of which there are others.
        self.whole, self.loose = True, set[str]()
        #: True if lines have candidates between their ends.
        self.corners = False

    def _is_number(self, name: str) -> bool:
        """True if a column may have any number within bounds; False if values are listed."""
        kind, where = self.row.dtype(name).kind, f"within[{name!r}]"
        given, number = self.within.get(name, (None, None)), kind in "fiu"
        listed = isinstance(given, list | tuple)
        texts = kind != "O" or name not in self.within or (listed and are_texts(given))
        if not (listed or number) or (listed and not (given and texts)):
            hint = "such as ['Oslo', 'Rome']; for numbers a pair (low, high)"
            what = "the allowed values are not a list of texts"
            raise _wrong(what, where, repr(given)[:80], hint)
        for each in given if listed and number and len(given) != 2 else ():
            if not self._bounds(name, (each, each))[0].is_integer() and name in self.row.whole:
                hint = "such as [1, 2, 5], or bounds (low, high)"
                raise _wrong("this column has whole numbers alone", where, repr(each)[:80], hint)
        return number and not (listed and len(given) != 2)

    def _bounds(self, name: str, pair: object) -> tuple[float, float]:
        """A pair as bounds of a column, which has numbers of their size."""
        where, dtype = f"within[{name!r}]", self.row.dtype(name)
        ends = bounds(pair, where)
        most = min(np.iinfo(dtype).max, 2**53) if dtype.kind in "iu" else LARGEST
        if any(most < abs(each) < math.inf for each in ends):
            hint = f"up to {most:g}; None is without a bound"
            raise _wrong("these numbers are too large here", where, repr(pair)[:80], hint)
        return ends

    def _range(self, name: str) -> Range:
        low, high = self._bounds(name, self.within.get(name, (None, None)))
        old, facts = float(self.row.values[name]), self.training.get(name, {})
        spread = float(facts.get("most") or 0.0) - float(facts.get("least") or 0.0)
        usual = 1.0 if math.isnan(old) else max(1.0, abs(old))
        scales = [each for each in (high - low, spread, usual) if 0 < each < math.inf]
        return Range(old, low, high, scales[0])

    def fill(self, read: ReadColumns, is_line: Callable[[str], bool]) -> None:
        """Make the candidates, the cheapest first; `is_line` says of which columns ends do."""
        units: list[tuple[NDArray[Any], Numbers]] = []
        for name in self.free:
            old, words, numbers = self.row.values[name], [""], self.ranges.get(name)
            if isinstance(self.row.places[name][2], Text):
                words = list(dict.fromkeys(w.casefold() for w in re.findall(r"\w+", old)))
                made = objects(["", *self.within.get(name, ())])
            elif numbers is not None and name not in read.categories:
                made = self._numbers(name, read, is_line)
                made = made[made != old].astype(self.row.dtype(name))
            else:
                made, numbers = self._listed(name, read), None
            costs = np.ones(len(made)) if numbers is None else numbers.costs(made)
            units += [(made, costs)] * len(words)
            self.units += [(name, word) for word in words]
        if not units:
            return
        unit = np.repeat(np.arange(len(units)), [len(values) for values, _ in units])
        costs = np.concatenate([each for _, each in units])
        order = np.argsort(costs, kind="stable")
        self.unit, self.costs = unit[order], costs[order]
        self.values = np.concatenate([values for values, _ in units])[order]

    def _listed(self, name: str, read: ReadColumns) -> NDArray[Any]:
        """The values of a column of categories."""
        usual = [False, True] if self.row.dtype(name).kind == "b" else None
        found = read.categories.get(name, usual)
        if name in self.ranges:  # numbers that may be read in another way as well
            _, low, high, _ = self.ranges[name]
            found, self.whole = [each for each in found or () if low <= each <= high], False
        elif name in self.within:
            found = self.within[name]
        self.whole &= found is not None
        return objects([each for each in found or () if each != self.row.values[name]])

    def _numbers(self, name: str, read: ReadColumns, is_line: Callable[[str], bool]) -> Numbers:
        """The values of a column of numbers that are looked at."""
        old, low, high, scale = self.ranges[name]
        here = 0.0 if math.isnan(old) else old
        integer = name in self.row.whole
        if name in read.cells:
            lower, upper, whole = read.cells[name]
            self.whole &= whole
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
            if integer:
                lower, upper = np.ceil(lower), np.floor(upper)
            return np.asarray(np.clip(here, lower, upper)[lower <= upper])
        if integer and high - low <= FEW:
            return np.arange(math.ceil(low), math.floor(high) + 1.0)
        if is_line(name):
            ends = np.array([each for each in (low, high) if math.isfinite(each)])
            return np.linspace(low, high, GRID) if len(ends) == 2 and self.corners else ends
        self.whole = False
        self.loose.add(name)
        least = low if math.isfinite(low) else here - 4 * scale
        most = high if math.isfinite(high) else here + 4 * scale
        values = np.linspace(least, most, GRID)
        return np.unique(np.clip(np.round(values), low, high)) if integer else values

    def changed(self, chosen: NDArray[np.int64]) -> dict[str, Any]:
        """The columns that change in rows of candidates, by name."""
        made: dict[str, Any] = {}
        picked = chosen.reshape(-1)
        units = self.unit[picked]
        sizes = np.min_scalar_type(len(self.units))  # integers of few bits are sorted by radix
        order = np.argsort(units.astype(sizes), kind="stable")
        ends = np.searchsorted(units[order], np.arange(len(self.units) + 1))
        for unit in np.flatnonzero(np.diff(ends)).tolist():
            name, word = self.units[unit]
            places = order[ends[unit] : ends[unit + 1]]
            if name not in made:
                made[name] = np.full(len(chosen), self.row.values[name], self.row.dtype(name))
            rows, values = places // chosen.shape[1], self.values[picked[places]]
            if word:
                texts = zip(made[name][rows], values, strict=True)
                values = objects([_replaced(text, word, new) for text, new in texts])
            made[name][rows] = values
        return made


def _wrong(what: str, where: str, found: str | None, hint: str) -> ParameterError:
    return ParameterError(what, where=where, found=found, hint=hint)


def objects(values: Sequence[object]) -> NDArray[Any]:
    """Values of any kind as an array."""
    made = np.empty(len(values), object)
    made[:] = values
    return made


def _replaced(text: str, word: str, new: str) -> str:
    """The text with every occurrence of a word replaced, or removed with the space behind it."""
    pattern = rf"\b{re.escape(word)}\b" + ("" if new else r"\s?")
    return re.sub(pattern, lambda _: new, text, flags=re.IGNORECASE)
