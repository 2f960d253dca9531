"""The wanted number of replicas, from queues, processors and missed deadlines."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from flour.core.errors import is_count
from runtime.errors import ClusterError


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """Report of a replica with each beat."""

    waiting: int = 0
    """Requests whose answers are awaited."""
    busy: float = 0.0
    """Share of the time for which the thread that answers computed, since the last report."""
    requests: int = 0
    """Requests since it started."""
    missed: int = 0
    """Requests since it started that missed their deadline, or were refused as too late."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The bounds of the number of replicas, and when it changes. Times in seconds."""

    least: int = 1
    """0 lets a cluster without requests have none."""
    most: int = 1
    queue: float = 4.0
    """Requests that may wait at a replica."""
    busy: float = 0.7
    """Share of the time for which its answering thread may compute."""
    missed: float = 0.01
    """Share of requests that may miss their deadline."""
    up_seconds: float = 2.0
    """For how long more replicas must be needed before there are more."""
    down_seconds: float = 30.0
    """For how long fewer replicas must suffice before there are fewer."""
    zero_seconds: float = 60.0
    """Time without a request after which no replica is left, if `least` is 0."""

    def __post_init__(self) -> None:
        counts = is_count(self.least) and is_count(self.most, 1)
        if not counts or self.least > self.most:
            raise ClusterError(
                "a cluster has a number of replicas, or from few to many",
                found=f"{self.least}..{self.most}",
                hint="--replicas 3, or --replicas 0..4",
            )


class Autoscaler:
    """Decides at each look; it has no clock of its own."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self._needed: deque[tuple[float, int]] = deque()
        self._counts = (0, 0)
        self._asked = 0.0

    def wanted(
        self, now: float, replicas: int, loads: Sequence[ReplicaLoad], *, away: bool = False
    ) -> int:
        """The number of replicas from now on; `replicas` are those that should be there so far.

        While some are `away`, and may come back with a load that is unknown, there are no fewer.
        """
        scale = self.scale
        if replicas == 0:  # until it is woken
            return scale.least
        needed = max(self._needs(now, replicas, loads), replicas if away else 0)
        self._needed.append((now, needed))
        self._asked = now if away else self._asked
        horizon = now - max(scale.up_seconds, scale.down_seconds)
        while len(self._needed) > 1 and self._needed[1][0] <= horizon:
            self._needed.popleft()
        if self._needed[0][0] <= now - scale.up_seconds:  # looked at for long enough
            since = now - scale.up_seconds
            replicas = max(replicas, min(n for when, n in self._needed if when >= since))
        if self._needed[0][0] <= now - scale.down_seconds:
            since = now - scale.down_seconds
            replicas = min(replicas, max(n for when, n in self._needed if when >= since))
        idle = scale.least == 0 and now - self._asked >= scale.zero_seconds
        return 0 if idle else min(max(replicas, scale.least), scale.most)

    def woken(self, now: float) -> None:
        """A request came while there was no replica."""
        self._asked = now
        self._needed.clear()

    def _needs(self, now: float, replicas: int, loads: Sequence[ReplicaLoad]) -> int:
        scale = self.scale
        requests, missed = sum(each.requests for each in loads), sum(each.missed for each in loads)
        # A replica that went takes its counts along: differences of one look are never negative.
        came, late = max(0, requests - self._counts[0]), max(0, missed - self._counts[1])
        self._counts = requests, missed
        if came or not loads:  # no time without requests, as nothing could be asked
            self._asked = now
        queue = ceil(sum(each.waiting for each in loads) / scale.queue)
        busy = ceil(sum(each.busy for each in loads) / scale.busy)
        needed = max(1, queue, busy)
        return max(needed, replicas + 1) if late > scale.missed * max(came, 1) else needed
