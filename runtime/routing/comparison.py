"""Differences of a challenger's answers from its champion's, counted in bounded memory.

Counts of several processes add up. Bins of scores are those of the first values that a process met;
where two have other bins, each counts with its share of the values.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import partial
from html import escape
from secrets import token_hex
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from objectstore import Closing
from runtime.routing.pairs import Pair
from runtime.routing.row import MANY, values_of
from runtime.routing.shares import psi

#: Pairs that are kept, rows of all of them together, and differences in time.
KEPT, ROWS, TIMES = 1000, 20_000, 1000
#: Values of a column that are counted apart.
SEGMENTS = 100
OTHERS, SEVERAL = "(other)", "(several)"
#: With so many values in the first block, bins are between its deciles.
MANY_VALUES = 100
#: Answers of up to so many values are compared together with others of their kind.
SMALL = 1000
_PLAIN = frozenset({float, int, bool, str})


@dataclass(slots=True)
class OutputCounts:
    """The values of one output; differences are those of finite numbers."""

    values: int = 0
    agreeing: int = 0
    shapes: int = 0
    differences: int = 0
    total: float = 0.0
    largest: float = 0.0
    squares: float = 0.0
    #: Ends of bins by the first values of the champion, and how many of either are in each.
    histograms: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = field(default_factory=list)

    def add(self, expected: object, found: object, tolerance: float) -> NDArray[np.bool_]:
        """Count the values of a pair, or of some; which of them agree."""
        one, other = _dense(expected), _dense(found)
        if one.shape != other.shape:
            self.shapes += 1
            return np.zeros(1, bool)
        same = _same(one, other, tolerance)
        self.values += one.size
        self.agreeing += int(same.sum())
        if one.dtype.kind in "fiub" and other.dtype.kind in "fiub":
            with np.errstate(all="ignore"):
                apart = np.abs(one.astype(float) - other.astype(float))
            apart = apart[np.isfinite(apart)]
            self.differences += apart.size
            self.total += float(apart.sum())
            self.squares += float((apart**2).sum())
            self.largest = max(self.largest, float(apart.max(initial=0.0)))
            if one.dtype.kind == "f":
                self._bin(one.ravel(), other.ravel())
        return same

    def _bin(self, one: NDArray[Any], other: NDArray[Any]) -> None:
        """Count values between the deciles of the first block, or in tenths for single rows."""
        if not self.histograms:
            tenths = np.arange(1, 10) / 10
            many = one.size >= MANY_VALUES and bool(np.isfinite(one).all())
            ends = np.quantile(one, tenths) if many else tenths
            self.histograms.append((ends, np.zeros((2, 10), np.int64)))
        ends, bins = self.histograms[0]
        for side, values in enumerate((one, other)):
            bins[side] += np.bincount(np.searchsorted(ends, values), minlength=10)

    def take(self, other: OutputCounts) -> None:
        """Add the counts of another process."""
        self.values += other.values
        self.agreeing += other.agreeing
        self.shapes += other.shapes
        self.differences += other.differences
        self.total += other.total
        self.squares += other.squares
        self.largest = max(self.largest, other.largest)
        for ends, bins in other.histograms:
            same = [mine for known, mine in self.histograms if np.array_equal(known, ends)]
            if same:
                same[0][:] += bins
            else:
                self.histograms.append((ends, bins.copy()))  # to which others are added

    def to_dict(self) -> dict[str, float | int | None]:
        """The counts by name; a share or mean of nothing is None.

        Errors are standard errors, as what was asked of a shadow is a sample of what will be; that
        of a share is of two more values, one of which agrees, as none is sure.
        """
        many, of, pairs = self.agreeing, self.values, self.differences
        near = (many + 1) / (of + 2)
        mean = self.total / pairs if pairs else 0.0
        spread = max(self.squares / pairs - mean * mean, 0.0) if pairs else 0.0
        # The mean distance, by the number of values where there are several sets of bins.
        weights = [int(bins.sum()) for _, bins in self.histograms]
        parts = [psi(*bins) for _, bins in self.histograms]
        return {
            "values": self.values,
            "agreement": many / of if of else None,
            "agreement_error": (near * (1 - near) / of) ** 0.5 if of else None,
            "shapes_that_differ": self.shapes,
            "mean_difference": mean if pairs else None,
            "mean_difference_error": (spread / pairs) ** 0.5 if pairs else None,
            "largest_difference": self.largest if self.differences else None,
            "psi": (float(np.average(parts, weights=weights)) if sum(weights) else None),
        }


@dataclass(slots=True)
class SegmentCounts:
    """The pairs of one segment."""

    pairs: int = 0
    agreeing: int = 0
    errors: int = 0


@dataclass(slots=True)
class ComparisonCounts:
    """The counts of one process or several; seconds are the challenger's less the champion's."""

    column: str | None = None
    """The column whose values are the segments."""
    source: str = field(default_factory=partial(token_hex, 8))
    """The counter, a different one for each comparison of each process."""
    champion: str = ""
    challenger: str = ""
    pairs: int = 0
    champion_errors: int = 0
    challenger_errors: int = 0
    last: float = 0.0
    """When the last pair came, and the last one that disagrees."""
    apart: float = 0.0
    disagreements: int = 0
    first_difference: str | None = None
    seconds: deque[float] = field(default_factory=partial(deque, maxlen=TIMES))
    outputs: dict[str, OutputCounts] = field(default_factory=dict)
    segments: dict[str, SegmentCounts] = field(default_factory=dict)

    def agreement(self) -> tuple[int, int]:
        """The values that agree, and all of them: of the labels, or else of the first output."""
        found = self.outputs.get("label") or next(iter(self.outputs.values()), OutputCounts())
        return found.agreeing, found.values

    def segment(self, text: str) -> SegmentCounts:
        """The counts of a segment; all that come late are one."""
        if text not in self.segments and len(self.segments) >= SEGMENTS:
            text = OTHERS
        return self.segments.setdefault(text, SegmentCounts())

    def take(self, other: ComparisonCounts) -> None:
        """Add the counts of another process."""
        if other.last >= self.last:
            self.champion, self.challenger, self.last = other.champion, other.challenger, other.last
        if other.apart >= self.apart:
            self.apart, self.first_difference = other.apart, other.first_difference
        self.pairs += other.pairs
        self.champion_errors += other.champion_errors
        self.challenger_errors += other.challenger_errors
        self.disagreements = min(KEPT, self.disagreements + other.disagreements)
        self.seconds = deque([*self.seconds, *other.seconds])
        for name, output in other.outputs.items():
            self.outputs.setdefault(name, OutputCounts()).take(output)
        for text, theirs in other.segments.items():
            ours = self.segment(text)
            ours.pairs += theirs.pairs
            ours.agreeing += theirs.agreeing
            ours.errors += theirs.errors

    def to_json(self) -> dict[str, Any]:
        """For another process."""
        data = asdict(self) | {"seconds": list(self.seconds)}
        for each in data["outputs"].values():
            each["histograms"] = [[part.tolist() for part in pair] for pair in each["histograms"]]
        return data

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> ComparisonCounts:
        """From another process."""
        segments = {text: SegmentCounts(**each) for text, each in data["segments"].items()}
        outputs = {name: OutputCounts(**each) for name, each in data["outputs"].items()}
        for each in outputs.values():
            each.histograms = [
                (np.array(ends, float), np.array(bins, np.int64)) for ends, bins in each.histograms
            ]
        seconds = deque(data["seconds"], maxlen=TIMES)
        return cls(**{**data, "seconds": seconds, "outputs": outputs, "segments": segments})

    def to_dict(self) -> dict[str, Any]:
        """All counts as plain data."""
        made: dict[str, Any] = {
            "champion": self.champion,
            "challenger": self.challenger,
            "pairs": self.pairs,
            "disagreements": self.disagreements,
            "champion_errors": self.champion_errors,
            "challenger_errors": self.challenger_errors,
            "seconds": _quantiles(self.seconds),
            "outputs": {name: each.to_dict() for name, each in self.outputs.items()},
            "first_difference": self.first_difference,
        }
        if self.column is not None:
            cells = {name: asdict(each) for name, each in self.segments.items()}
            made["segments"] = {"column": self.column, "values": cells}
        return made


class Comparison(Closing):
    """Takes pairs of answers, as `Experiments.observe` hands them over, and counts what differs.

    Floating-point numbers agree within `tolerance`, absolute or relative; all else has to be equal,
    and NaN equals NaN. The last `keep` pairs that disagree are kept with their rows. Pairs are
    also counted by the value of a column, the `segment`. `differing` says for a pair at which step
    the programs of the two first differ.
    """

    def __init__(
        self,
        tolerance: float = 1e-6,
        keep: int = KEPT,
        *,
        segment: str | None = None,
        differing: Callable[[Pair], str] | None = None,
    ) -> None:
        self._tolerance, self._segment, self._differing = tolerance, segment, differing
        self._lock, self._counts = Lock(), ComparisonCounts(segment)
        self._disagreements: deque[Pair] = deque(maxlen=keep)
        self._shown: Callable[[Pair], Pair] | None = None
        #: Closed with the comparison, as what hands it pairs no more.
        self.ended = ExitStack()

    def close(self) -> None:
        """Take no more pairs; what was counted stays."""
        self.ended.close()

    def conceal(self, shown: Callable[[Pair], Pair], columns: Collection[str]) -> None:
        """Keep pairs as `shown` gives them from now on, also those that were kept before.

        Nothing is counted by the values of these columns, nor kept of what was.
        """
        with self._lock:
            self._shown = shown
            kept = map(shown, self._disagreements)
            self._disagreements = deque(kept, self._disagreements.maxlen)
            if self._segment in columns:
                self._segment, self._counts.column = None, None
                self._counts.segments.clear()

    def add(self, pair: Pair) -> None:
        """Take a pair in."""
        with self._lock:
            self._noted(pair, agrees=self._agrees(pair))

    def add_all(self, pairs: Sequence[Pair]) -> None:
        """Take some pairs in; those that are alike are compared together."""
        groups: dict[object, list[Pair]] = {}
        for pair in pairs:
            groups.setdefault(_shapes(pair), []).append(pair)
        with self._lock:
            for shapes, some in groups.items():
                agree = self._agree(some) if shapes and len(some) > 1 else None
                for place, pair in enumerate(some):
                    agrees = self._agrees(pair) if agree is None else bool(agree[place])
                    self._noted(pair, agrees=agrees)

    def _agree(self, some: Sequence[Pair]) -> NDArray[np.bool_]:
        """A mask of the pairs that agree; all have outputs of one name, type and shape."""
        agree = np.ones(len(some), bool)
        sides = [(each.expected, each.found) for each in some]
        for name in sides[0][0]:  # type: ignore[union-attr]  # these are no errors
            one, other = (np.array([each[side][name] for each in sides]) for side in (0, 1))  # type: ignore[index]  # as above
            counts = self._counts.outputs.setdefault(name, OutputCounts())
            agree &= counts.add(one, other, self._tolerance).reshape(len(some), -1).all(axis=1)
        return agree

    def _noted(self, pair: Pair, *, agrees: bool) -> None:
        counts = self._counts
        pair = pair if self._shown is None else self._shown(pair)
        counts.pairs, counts.last = counts.pairs + 1, time.time()
        counts.champion, counts.challenger = pair.champion, pair.challenger
        if pair.challenger_seconds is not None is not pair.champion_seconds:
            counts.seconds.append(pair.challenger_seconds - pair.champion_seconds)
        if not agrees:
            counts.apart = counts.last
            self._keep(pair)
        if self._segment is not None:
            self._count_segment(pair, agrees=agrees)

    def _agrees(self, pair: Pair) -> bool:
        expected, found = pair.expected, pair.found
        if isinstance(expected, Exception) or isinstance(found, Exception):
            self._counts.champion_errors += isinstance(expected, Exception)
            self._counts.challenger_errors += isinstance(found, Exception)
            return isinstance(expected, Exception) and isinstance(found, Exception)
        agree = True
        for name in dict.fromkeys((*expected, *found)):
            counts = self._counts.outputs.setdefault(name, OutputCounts())
            if name in expected and name in found:
                try:
                    agree &= bool(counts.add(expected[name], found[name], self._tolerance).all())
                except (TypeError, ValueError):  # lists of lists of different lengths
                    counts.shapes += 1
                    agree = False
            else:
                counts.shapes += 1
                agree = False
        return agree

    def _keep(self, pair: Pair) -> None:
        """Keep a pair that disagrees, and forget old ones that have too many rows together."""
        self._disagreements.append(pair)
        left = ROWS
        for place in range(len(self._disagreements) - 1, -1, -1):
            left -= _rows(self._disagreements[place].expected)
            if left < 0 and place < len(self._disagreements) - 1:
                for _ in range(place + 1):
                    self._disagreements.popleft()
                break

    def _count_segment(self, pair: Pair, *, agrees: bool) -> None:
        value = values_of(pair.rows).get(self._segment or "")
        counts = self._counts.segment(SEVERAL if value is MANY else str(value)[:100])
        counts.pairs += 1
        counts.agreeing += agrees
        counts.errors += isinstance(pair.found, Exception)

    @property
    def disagreements(self) -> tuple[Pair, ...]:
        """The newest pairs that disagree, the oldest first."""
        with self._lock:
            return tuple(self._disagreements)

    def first_difference(self) -> str | None:
        """At which step the programs first differ, for the newest pair that disagrees."""
        pairs = self.disagreements
        return self._differing(pairs[-1]) if pairs and self._differing is not None else None

    def agreement(self) -> tuple[int, int]:
        """The values that agree, and all of them: of the labels, or else of the first output."""
        with self._lock:
            return self._counts.agreement()

    def counts(self) -> ComparisonCounts:
        """All counts so far; what differs first is computed by definitions, which takes long."""
        with self._lock:
            found = deepcopy(self._counts)
            found.disagreements = len(self._disagreements)
        found.first_difference = self.first_difference()
        return found

    def to_dict(self) -> dict[str, Any]:
        """All counts as plain data; seconds are the challenger's less the champion's."""
        return self.counts().to_dict()

    def __str__(self) -> str:
        """The counts as lines."""
        return "\n".join(f"{name:<24}{value}" for name, value in self._lines())

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self) -> str:
        """The counts as a table, which notebooks show."""
        rows = (f"<tr><td>{escape(a)}</td><td>{escape(b)}</td></tr>" for a, b in self._lines())
        return f"<table>{''.join(rows)}</table>"

    def _lines(self) -> Iterator[tuple[str, str]]:
        found = self.to_dict()
        if not found["pairs"]:
            yield "pairs", "0: no shadow was asked yet"
            return
        yield "champion", found["champion"]
        yield "challenger", found["challenger"]
        errors = f"{found['champion_errors']} and {found['challenger_errors']} errors"
        yield "pairs", f"{found['pairs']}, {errors}"
        slower = ", ".join(f"{name} {1e6 * each:+.1f}" for name, each in found["seconds"].items())
        yield "challenger's time, us", slower
        for name, each in found["outputs"].items():
            yield f"output {name}", _told(each)
        segments = found.get("segments", {"column": "", "values": {}})
        for name, each in segments["values"].items():
            share = each["agreeing"] / each["pairs"]
            label = f"{segments['column']} = {name}"
            yield label, f"{each['pairs']} pairs, {share:.2%} agree, {each['errors']} errors"
        if found["first_difference"]:
            yield "first difference", found["first_difference"]


def _shapes(pair: Pair) -> object:
    """The common key of pairs that can be compared together; None if they cannot."""
    one, other = pair.expected, pair.found
    if isinstance(one, Exception) or isinstance(other, Exception) or one.keys() != other.keys():
        return None
    kinds = [(name, _kind(value), _kind(other[name])) for name, value in one.items()]
    alike = all(kind is not None and kind == beside for _, kind, beside in kinds)
    return tuple(kinds) if alike else None


def _kind(value: object) -> object:
    """The type of a number, a text or a small array, and its shape."""
    if type(value) in _PLAIN:
        return type(value)
    small = type(value) is np.ndarray and 0 < value.size <= SMALL and value.dtype.kind in "fiub"
    return (value.dtype.str, value.shape) if small else None  # type: ignore[attr-defined]  # an array


def _rows(answers: Mapping[str, Any] | Exception) -> int:
    """The number of answered rows."""
    if isinstance(answers, Exception):
        return 1
    shape = getattr(next(iter(answers.values()), None), "shape", ())
    return int(shape[0]) if shape else 1


def _told(counts: Mapping[str, Any]) -> str:
    """The counts of an output in words."""
    parts = (
        []
        if counts["agreement"] is None
        else [f"{counts['agreement']:.2%} ±{counts['agreement_error']:.2%} agree"]
    )
    if counts["mean_difference"] is not None:
        mean, most = counts["mean_difference"], counts["largest_difference"]
        parts.append(f"difference {mean:.3g} in the mean, {most:.3g} at most")
    if counts["psi"] is not None:
        parts.append(f"PSI {counts['psi']:.3g}")
    if counts["shapes_that_differ"]:
        parts.append(f"{counts['shapes_that_differ']} of another shape")
    return ", ".join(parts)


def _quantiles(values: Iterable[float]) -> dict[str, float]:
    known = np.fromiter(values, float)
    if not known.size:
        return {}
    median, high = np.quantile(known, (0.5, 0.99)).tolist()
    return {"mean": float(known.mean()), "median": median, "p99": high}


def _dense(value: object) -> NDArray[Any]:
    dense = getattr(value, "toarray", None)
    return np.asarray(dense() if callable(dense) else value)


def _same(one: NDArray[Any], other: NDArray[Any], tolerance: float) -> NDArray[np.bool_]:
    if "f" in (kinds := one.dtype.kind + other.dtype.kind) and set(kinds) <= set("fiub"):
        close = np.isclose(other, one, rtol=tolerance, atol=tolerance, equal_nan=True)
        return np.asarray(close, bool)
    if "O" not in kinds:
        return np.asarray(one == other, bool)
    pairs = zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)
    return np.array([_equal(left, right) for left, right in pairs], dtype=bool)


def _equal(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float) and np.isnan(one) and np.isnan(other):
        return True
    return np.array_equal(np.asarray(one, dtype=object), np.asarray(other, dtype=object))
