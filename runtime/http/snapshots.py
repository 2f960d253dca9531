"""Metrics as plain data: families of samples, their sum over processes, percentiles of buckets.

A snapshot is a list of families. It goes as JSON from one process to another, and `merge` makes one
of several, as if a single process had counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from runtime.http.wire.loop_fairness import gently

Labels = tuple[tuple[str, str], ...]

#: Upper bounds of the buckets of durations, in seconds; the last bucket has none.
BOUNDS = (
    *(5e-05, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01),
    *(0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


@dataclass(slots=True)
class Distribution:
    """Durations by the buckets of `BOUNDS`, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def record(self, seconds: float) -> None:
        """Count a duration; one that equals a bound is within it."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def plus(self, other: Distribution) -> Distribution:
        """The sum of both distributions."""
        counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        return Distribution(counts, self.total + other.total)

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """About the duration that this share does not exceed; None without durations.

        Within a bucket durations are taken to be spread evenly. What is beyond the last bound
        counts as the last bound.
        """
        rank, seen = share * self.count, 0
        for bucket, count in enumerate(self.counts):
            if count and seen + count >= rank:
                if bucket == len(BOUNDS):
                    return BOUNDS[-1]
                low = BOUNDS[bucket - 1] if bucket else 0.0
                return low + (BOUNDS[bucket] - low) * (rank - seen) / count
            seen += count
        return None


Value = float | Distribution


@dataclass(slots=True)
class Family:
    """Samples of one name. `over` says how the samples of several processes are combined."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: list[tuple[Labels, Value]] = field(default_factory=list)
    over: Literal["sum", "max", "min"] = "sum"

    def add(self, value: Value, **labels: str) -> None:
        """Add a sample."""
        self.put(value, tuple(labels.items()))

    def put(self, value: Value, labels: Labels) -> None:
        """Add a sample with a label tuple that several samples share.

        Thousands of models make tens of thousands of samples: with fewer objects they wake the
        garbage collector less, which stops the process for a time that grows with its models.
        """
        self.samples.append((labels, value))


Snapshot = list[Family]


class SnapshotSource(Protocol):
    """A source of the figures of all processes that serve one port."""

    async def everywhere(self) -> Snapshot:
        """The figures of all of them."""


_parts, _family = msgspec.json.Decoder(list[msgspec.Raw]), msgspec.json.Decoder(Family)


def to_json(snapshot: Snapshot) -> str:
    """A snapshot for another process as text, which is ten times as fast as objects."""
    return f"[{','.join(msgspec.json.encode(each).decode() for each in gently(snapshot, 1))}]"


def from_json(data: object) -> Snapshot:
    """A snapshot of another process; ValueError if it is not valid."""
    if not isinstance(data, str):
        raise ValueError(f"a snapshot is text, not {type(data).__name__}")  # noqa: TRY004 (as msgspec)
    return [_family.decode(each) for each in gently(_parts.decode(data), 1)]


def merge(snapshots: Iterable[Sequence[Family]]) -> Snapshot:
    """Merge snapshots. Families and samples keep the order of their first occurrence."""
    families: dict[str, Family] = {}
    samples: dict[str, dict[Labels, Value]] = {}
    for snapshot in snapshots:
        for family in snapshot:
            first = families.setdefault(family.name, family)
            into = samples.setdefault(family.name, {})
            for labels, value in family.samples:
                into[labels] = (
                    _combine(first.over, into[labels], value) if labels in into else value
                )
    return [
        Family(each.name, each.kind, each.help, list(samples[name].items()), each.over)
        for name, each in families.items()
    ]


def _combine(over: str, left: Value, right: Value) -> Value:
    if isinstance(left, Distribution) or isinstance(right, Distribution):
        assert isinstance(left, Distribution), "a name has one kind of values"
        assert isinstance(right, Distribution), "a name has one kind of values"
        return left.plus(right)
    return (
        left + right if over == "sum" else max(left, right) if over == "max" else min(left, right)
    )
