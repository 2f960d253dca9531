"""All times of a measurement in buckets one per cent wide, so that percentiles leave nothing out.

A histogram is small for any number of calls, can be added across rounds and processes, and is kept
whole in the results, so any percentile can be computed later.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

_STEP = math.log(1.01)


class Histogram:
    """Counts of nanoseconds by logarithmic bucket, with the exact extremes and sum."""

    def __init__(self, times: Iterable[int] = ()) -> None:
        self.counts: Counter[int] = Counter()
        self.total = 0
        self.least, self.most = math.inf, 0.0
        self.add(times)

    def add(self, times: Iterable[int]) -> None:
        """Count some more times, in nanoseconds."""
        for each in times:
            time = max(each, 1)
            self.counts[int(math.log(time) / _STEP)] += 1
            self.total += time
            self.least, self.most = min(self.least, time), max(self.most, time)

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self.counts.update(other.counts)
        self.total += other.total
        self.least, self.most = min(self.least, other.least), max(self.most, other.most)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def percentile(self, share: float) -> float:
        """The time that `share` of all calls did not exceed: 0.5 is the median."""
        if share >= 1 and self.counts:
            return self.most
        wanted = max(1, math.ceil(share * len(self)))
        seen = 0
        for bucket, count in sorted(self.counts.items()):
            seen += count
            if seen >= wanted:
                return min(max(math.exp((bucket + 0.5) * _STEP), self.least), self.most)
        return math.nan

    @property
    def mean(self) -> float:
        """The mean, which is exact."""
        return self.total / len(self) if self.counts else math.nan

    def curve(self) -> list[tuple[float, float]]:
        """The distribution: (time, share of calls that were no slower)."""
        seen, every = 0, len(self)
        points = []
        for bucket, count in sorted(self.counts.items()):
            seen += count
            points.append((math.exp((bucket + 0.5) * _STEP), seen / every))
        return points

    def as_json(self) -> dict[str, object]:
        """As plain data, to be written."""
        return {
            "counts": {str(bucket): count for bucket, count in sorted(self.counts.items())},
            "total": self.total,
            "least": None if self.least == math.inf else self.least,
            "most": self.most,
        }

    @classmethod
    def of_json(cls, data: Mapping[str, object]) -> Histogram:
        """A histogram from the data of `as_json`."""
        histogram = cls()
        counts = data["counts"]
        assert isinstance(counts, Mapping)
        histogram.counts.update({int(bucket): int(count) for bucket, count in counts.items()})
        histogram.total = int(str(data["total"]))
        histogram.least = math.inf if data["least"] is None else float(str(data["least"]))
        histogram.most = float(str(data["most"]))
        return histogram
