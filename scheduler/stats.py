"""Counters and latency histograms: bounded memory, plain data on the way out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.job import State

# Each power of two of nanoseconds has 16 buckets: a figure is at most 1/32 off its true value.
_BITS = 4
_LARGEST = (1 << 44) - 1  # some five hours
_BUCKETS = (44 - _BITS + 1) << _BITS


def _bucket(nanoseconds: int) -> int:
    """Return the bucket of a duration; below 32 ns every nanosecond has its own."""
    shift = max(0, nanoseconds.bit_length() - _BITS - 1)
    return (shift << _BITS) + (nanoseconds >> shift)


@dataclass(frozen=True, slots=True)
class Latency:
    """Summary of a histogram, in seconds."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    largest: float


class Histogram:
    """Durations by logarithmic buckets. Recording from several threads needs a lock."""

    __slots__ = ("_counts", "count", "largest", "total")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.total = 0.0
        self.largest = 0.0

    def record(self, seconds: float) -> None:
        """Count a duration."""
        nanoseconds = min(max(int(seconds * 1e9), 0), _LARGEST)
        shift = nanoseconds.bit_length() - _BITS - 1
        if shift > 0:  # `_bucket`, written out: this runs twice per job
            self._counts[(shift << _BITS) + (nanoseconds >> shift)] += 1
        else:
            self._counts[nanoseconds] += 1
        self.count += 1
        self.total += seconds
        self.largest = max(self.largest, seconds)

    def quantile(self, share: float) -> float:
        """Return the duration that this share of all durations does not exceed."""
        rank, seen = share * self.count, 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if count and seen >= rank:
                shift = max(0, (bucket >> _BITS) - 1)
                low = (bucket - (shift << _BITS)) << shift
                return min((low + ((1 << shift) - 1) / 2) * 1e-9, self.largest)
        return 0.0

    def add(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self._counts = [a + b for a, b in zip(self._counts, other._counts, strict=True)]
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)

    def summary(self) -> Latency:
        """Return count, mean, quantiles and maximum."""
        mean = self.total / self.count if self.count else 0.0
        p50, p90, p99, p999 = map(self.quantile, (0.5, 0.9, 0.99, 0.999))
        return Latency(self.count, mean, p50, p90, p99, p999, self.largest)

    @classmethod
    def of(cls, durations: Iterable[float]) -> Histogram:
        """Return a histogram of these durations."""
        histogram = cls()
        for each in durations:
            histogram.record(each)
        return histogram


class DispatchCounts:
    """Counters, written by the dispatcher only."""

    __slots__ = ("busy", "deaths", "reached", "refused", "stages", "submitted", "total", "wait")

    def __init__(self) -> None:
        self.submitted = self.refused = self.stages = self.deaths = 0
        self.busy = 0.0  # seconds that executors spent in stages
        self.reached: dict[State, int] = dict.fromkeys(State, 0)  # jobs, by state
        self.wait = Histogram()  # from submission to the first start
        self.total = Histogram()  # from submission to the end, of jobs that were done
