"""What may be changed in a row: for each column its new values, and what each of them costs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError
from flour.core.types import Pairs, Text, Tokens, Whole
from oven.explain.attribution.tree_tables import Numbers
from oven.explain.counterfactuals.columns import Reading, ReadColumns
from oven.explain.counterfactuals.forest import Forest
from oven.explain.counterfactuals.raw_row import RawRow
from oven.explain.counterfactuals.wanted import bounds

#: The values of a column that is read in an unknown way; most documents with several changes.
GRID, DOCUMENTS = 33, 3000
#: Integers in a range of up to so many are tried one by one.
FEW = 256


class Line(NamedTuple):
    """A column of numbers along which a sum of scores rises or falls evenly."""

    old: float
    low: float
    high: float
    scale: float


@dataclass
class Unit:
    """New values of one column, the cheapest first."""

    column: str
    values: NDArray[Any]
    costs: Numbers
    #: The words that each value changes in a document; 1 for all other columns.
    size: int = 1
    #: True if no other values have to be looked at.
    whole: bool = True
    line: Line | None = None
    #: The cell of each value, of a column that trees cut.
    cells: NDArray[np.int64] | None = None


class Allowed:
    """The columns that may change, and within which bounds."""

    def __init__(
        self,
        row: RawRow,
        free: Sequence[str] | None,
        within: Mapping[str, Any] | None,
        training: Mapping[str, Any],
    ) -> None:
        self.row, self.within = row, dict(within or {})
        self.free = list(row.places) if free is None else list(dict.fromkeys(free))
        for where, names in (("free", self.free), ("within", self.within)):
            for name in names:
                if name not in row.places:
                    raise _unknown(name, where, row.places)
                if where == "within" and name not in self.free:
                    hint = "name it in free as well"
                    raise ParameterError(f"{name!r} may not change", where="within", hint=hint)
        self._training: Mapping[str, Any] = training.get("columns", {})
        self._bounds = {name: self._range(name) for name in self.free if self.is_number(name)}

    def is_number(self, name: str) -> bool:
        """True if a column holds numbers, for which no list of values is given."""
        dtype = self.row.dtype(name)
        if dtype is None or dtype.kind == "b":
            return False
        given = self.within.get(name)
        return given is None or (isinstance(given, tuple | list) and len(given) == 2)

    def _range(self, name: str) -> tuple[float, float]:
        hint = "numbers have a pair (low, high), either of which may be None, or a list of values"
        return bounds(self.within.get(name, (None, None)), f"within[{name!r}]", hint)

    def line(self, name: str) -> Line:
        """A column's old value, its bounds, and the distance that costs 1."""
        old, (low, high) = float(self.row.values[name]), self._bounds[name]
        facts = self._training.get(name, {})
        scale = high - low
        if not 0 < scale < math.inf:
            scale = float(facts.get("most", 0.0)) - float(facts.get("least", 0.0))
        if not 0 < scale < math.inf:
            scale = 1.0 if math.isnan(old) else max(1.0, abs(old))
        return Line(old, low, high, scale)


def _unknown(name: str, where: str, names: Mapping[str, Any]) -> ParameterError:
    from flour.core.errors import nearest

    hint = nearest(name, names) or "columns are " + ", ".join(list(names)[:12])
    return ParameterError("there is no such column", where=where, found=repr(name), hint=hint)


def units_of(
    allowed: Allowed, columns: ReadColumns, forest: Forest | None, most: int
) -> Iterator[Unit]:
    """The units of all columns that may change."""
    row = allowed.row
    readings = {}
    for name in allowed.free:
        kind = row.places[name][2]
        if not isinstance(kind, Pairs | Tokens | Whole):
            readings[name] = columns.reading(name, kind, row.dtype(name))
    cut = [name for name, reading in readings.items() if reading == "cells"]
    if forest is not None and (new := [name for name in cut if name not in forest.cells]):
        forest.find_cells(row, new)
    for name, reading in readings.items():
        if isinstance(row.places[name][2], Text):
            yield from _documents(allowed, name, most)
        elif reading != "never":
            yield _unit(allowed, columns, forest, name, reading)


def _unit(
    allowed: Allowed, columns: ReadColumns, forest: Forest | None, name: str, reading: Reading
) -> Unit:
    if not allowed.is_number(name):
        return _finite(allowed, name, columns.categories.get(name))
    line = allowed.line(name)
    if reading == "finite":
        found = [v for v in columns.categories[name] if line.low <= v <= line.high]
        return _finite(allowed, name, found)
    whole = allowed.row.dtype(name)
    integer = whole is not None and whole.kind in "iu"
    if reading == "cells" and forest is not None:
        lower, upper = forest.cells[name]
        low, high = np.maximum(lower, line.low), np.minimum(upper, line.high)
        if integer:
            low, high = np.ceil(low), np.floor(high)
        cells = np.flatnonzero(low <= high)
        values = np.clip(0.0 if math.isnan(line.old) else line.old, low[cells], high[cells])
        return _priced(name, values, line, cells=cells)
    if integer and line.high - line.low <= FEW:
        return _priced(name, np.arange(math.ceil(line.low), math.floor(line.high) + 1.0), line)
    if reading == "line":
        ends = np.array([each for each in (line.low, line.high) if math.isfinite(each)])
        return _priced(name, ends, line, whole=not integer, along=True)
    around = 0.0 if math.isnan(line.old) else line.old
    low = line.low if math.isfinite(line.low) else around - 4 * line.scale
    high = line.high if math.isfinite(line.high) else around + 4 * line.scale
    values = np.linspace(low, high, GRID)
    return _priced(name, np.unique(np.round(values)) if integer else values, line, whole=False)


def _priced(
    name: str,
    values: Numbers,
    line: Line,
    *,
    whole: bool = True,
    along: bool = False,
    cells: NDArray[np.int64] | None = None,
) -> Unit:
    """A unit of numbers with their costs."""
    costs = price(values, line)
    order = np.argsort(costs, kind="stable")
    order = order[values[order] != line.old]
    at = None if cells is None else cells[order]
    held = line if along else None
    return Unit(name, values[order], costs[order], whole=whole, line=held, cells=at)


def price(values: Any, line: Line) -> Numbers:
    """The costs of new numbers; one in a missing value's place costs 1."""
    if math.isnan(line.old):
        return np.ones(np.shape(values))
    return np.abs(np.asarray(values) - line.old) / line.scale


def _finite(allowed: Allowed, name: str, known: Sequence[Any] | None) -> Unit:
    """A unit of categories, each of which costs 1."""
    dtype, old = allowed.row.dtype(name), allowed.row.values[name]
    given = allowed.within.get(name)
    if isinstance(given, str) or not isinstance(given, Sequence | None):
        raise ParameterError(
            "the allowed values are not a list",
            where=f"within[{name!r}]",
            found=repr(given)[:80],
            hint="such as ['Oslo', 'Rome']",
        )
    values = given if given is not None else known
    if dtype is not None and dtype.kind == "b" and values is None:
        values = [False, True]
    kept = [each for each in values or () if each != old]
    made = np.empty(len(kept), object)
    made[:] = kept
    return Unit(name, made, np.ones(len(kept)), whole=values is not None)


def _documents(allowed: Allowed, name: str, most: int) -> Iterator[Unit]:
    """Units of a document with one word, two words and so on removed or replaced."""
    document = allowed.row.values[name]
    words = list(dict.fromkeys(each.casefold() for each in re.findall(r"\w+", document)))
    changes = [(word, new) for word in words for new in ("", *allowed.within.get(name, ()))]
    for size in range(1, most + 1):
        made: list[str] = []
        whole = True
        for chosen in combinations(changes, size):
            if len(made) == DOCUMENTS:
                whole = False
                break
            if len({word for word, _ in chosen}) == size:
                made.append(_without(document, chosen))
        values = np.empty(len(made), object)
        values[:] = made
        if len(values):
            yield Unit(name, values, np.full(len(values), float(size)), size, whole)


def _without(document: str, chosen: Sequence[tuple[str, str]]) -> str:
    """The document with all occurrences of some words replaced, or removed."""
    for word, new in chosen:
        after = "" if new else r"\s?"
        document = re.sub(rf"\b{re.escape(word)}\b{after}", lambda _, n=new: n, document, flags=re.I)
    return document
