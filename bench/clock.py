"""The time budget of a run: the needs of each part, its share of the budget, the time left.

A part is a workload with all its measurements, or a separate experiment. Its need is the time that
it took last time with one round of each measurement. With a budget, parts get shares of the
remaining time in proportion to their needs, and spend them on rounds: one at least, then more while
they fit. A part that takes longer than its share takes the time from further rounds of others, not
from their needs. Parts for which no time is left are skipped, and the report says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

#: A part begins only if this share of its need is left.
_LEAST = 0.1


class Needs(NamedTuple):
    """The seconds that a part needs: with one round, and for each further round."""

    least: float
    more: float = 0.0

    def whole(self, rounds: int) -> float:
        """The need with this many rounds."""
        return self.least + (rounds - 1) * self.more


class Clock:
    """The time of one run, in seconds."""

    def __init__(
        self,
        expected: Mapping[str, Needs],
        budget: float | None = None,
        now: Callable[[], float] = time.monotonic,
        rounds: int = 1,
    ) -> None:
        self._coming = dict(expected)
        self._budget, self._now, self._most = budget, now, rounds
        self._start = self._began = now()
        self._part, self._needs = "", Needs(0.0)
        self._until: float | None = None
        self._latest: float | None = None
        self._beyond = self._more = 0.0
        self._took: dict[str, float] = {}
        self._foreseen = 0.0

    def begin(self, part: str) -> bool:
        """Start a part; False if there is no time for it."""
        self._part, self._began = part, self._now()
        self._needs = self._coming.pop(part, Needs(1.0))
        self._until = self._latest = None
        self._beyond = self._more = 0.0
        if self._budget is not None:
            least, others = self._needs.least, sum(each.least for each in self._coming.values())
            remaining = self._budget - self.elapsed
            if remaining < _LEAST * least:
                return False
            self._until = self._began + remaining * least / (least + others)
            self._latest = max(self._until, self._began + remaining - others)
        return True

    def end(self) -> Needs:
        """End the part; returns its need, not less than expected if it was cut short."""
        took = self._now() - self._began
        self._took[self._part] = took
        self._foreseen += self._needs.whole(self._most)
        needs = Needs(took - self._beyond, self._more)
        if self.late:
            needs = Needs(*map(max, needs, self._needs))
        self._needs = Needs(0.0)
        return needs

    def rounds(self, most: int, share: float = 1.0) -> Iterator[int]:
        """Numbers of rounds: the first, then more while they fit into a share of what is left."""
        start = last = self._now()
        until = None if self._until is None else start + share * (self._until - start)
        first, number = 0.0, 0
        for number in range(most):
            now = self._now()
            if number == 1:
                first = now - start
            if number and until is not None and now + (now - last) > until:
                break
            last = now
            yield number
        else:
            number = most
        took = self._now() - start
        if number > 1:
            self._beyond += took - first
        self._more += (took - first) / (number - 1) if number > 1 else took

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self._now() - self._start

    @property
    def late(self) -> bool:
        """Whether the part uses time that other parts need."""
        return self._latest is not None and self._now() >= self._latest

    def left(self) -> float:
        """The expected remaining time, by the times of the last run."""
        took = sum(self._took.values())
        pace = took / self._foreseen if self._foreseen else 1.0
        now = max(self._needs.whole(self._most) * pace - (self._now() - self._began), 0.0)
        left = now + pace * sum(each.whole(self._most) for each in self._coming.values())
        if self._budget is None:
            return left
        return min(left, max(self._budget - self.elapsed, 0.0))


class Took:
    """The needs of parts on this machine, kept in a file from run to run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._known: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._known = {}

    def get(self, key: str, default: Needs) -> Needs:
        """The stored need of a part, else the default."""
        stored = self._known.get(key)
        return Needs(*map(float, stored)) if isinstance(stored, list) else default

    def put(self, key: str, needs: Needs) -> None:
        """Store for the next run."""
        self._known[key] = [round(each, 1) for each in needs]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._known, indent=1), encoding="utf-8")
