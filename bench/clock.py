"""How long a run may take: what each part took last time, its share of a budget, what is left.

A part is a workload with everything that is asked of it, or an experiment that stands alone. With a
budget, each part gets of what is left the share that it took last time, and spends it on rounds:
one at least, then more while they fit. What comes too late is left out, and the report says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

#: What of the time that a part took last must be there for it to begin.
_LEAST = 0.1


class Clock:
    """The time of one run, in seconds."""

    def __init__(
        self,
        expected: Mapping[str, float],
        budget: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coming = dict(expected)
        self._budget, self._now = budget, now
        self._start = self._began = now()
        self._part, self._expected = "", 0.0
        self._until: float | None = None
        self._took: dict[str, float] = {}
        self._foreseen = 0.0

    def begin(self, part: str) -> bool:
        """A part starts; False if there is no time for it."""
        self._part, self._began = part, self._now()
        weight = self._coming.pop(part, 1.0)
        self._expected, self._until = weight, None
        if self._budget is not None:
            remaining = self._budget - self.elapsed
            if remaining < _LEAST * weight:
                return False
            self._until = self._began + remaining * weight / (weight + sum(self._coming.values()))
        return True

    def end(self) -> float:
        """The part is over; the seconds it took."""
        took = self._now() - self._began
        self._took[self._part] = took
        self._foreseen += self._expected
        self._expected = 0.0
        return took

    def rounds(self, most: int, share: float = 1.0) -> Iterator[int]:
        """Numbers of rounds: the first, then more while they fit into a share of what is left."""
        start = last = self._now()
        until = None if self._until is None else start + share * (self._until - start)
        for number in range(most):
            now = self._now()
            if number and until is not None and now + (now - last) > until:
                return
            last = now
            yield number

    @property
    def elapsed(self) -> float:
        """Since the run began."""
        return self._now() - self._start

    @property
    def late(self) -> bool:
        """Whether the part has used up its share."""
        return self._until is not None and self._now() >= self._until

    def left(self) -> float:
        """What will probably still pass, by how long everything took last time."""
        took = sum(self._took.values())
        pace = took / self._foreseen if self._foreseen else 1.0
        now = max(self._expected * pace - (self._now() - self._began), 0.0)
        left = now + pace * sum(self._coming.values())
        if self._budget is None:
            return left
        return min(left, max(self._budget - self.elapsed, 0.0))


class Took:
    """What parts took on this machine, kept in a file from run to run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._known: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._known = {}

    def get(self, key: str, default: float) -> float:
        """Seconds, or a guess where nobody has measured yet."""
        return self._known.get(key, default)

    def put(self, key: str, seconds: float) -> None:
        """Remember for the next run."""
        self._known[key] = round(seconds, 1)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._known, indent=1), encoding="utf-8")
