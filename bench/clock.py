"""How long a run may take: what each part needs, its share of a budget, what is left.

A part is a workload with everything that is asked of it, or an experiment that stands alone. What
it needs is what it took last time with a single round of each measurement. With a budget, parts
share what is left as they share in that, and spend it on rounds: one at least, then more while
they fit. Who needs longer than its share takes it from rounds that others would do more, and not
from what they need. What comes too late all the same is left out, and the report says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

#: What of the time that a part needs must be there for it to begin.
_LEAST = 0.1


class Needs(NamedTuple):
    """What a part takes, in seconds: with one round of everything, and for each round more."""

    least: float
    more: float = 0.0

    def whole(self, rounds: int) -> float:
        """With so many rounds."""
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
        """A part starts; False if there is no time for it."""
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
        """The part is over; what it needed. Who was late may have left out things it needs."""
        took = self._now() - self._began
        self._took[self._part] = took
        self._foreseen += self._needs.whole(self._most)
        found = Needs(took - self._beyond, self._more)
        if self.late:
            found = Needs(*map(max, found, self._needs))
        self._needs = Needs(0.0)
        return found

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
        self._note(number, first, self._now() - start)

    def _note(self, number: int, first: float, took: float) -> None:
        """So many rounds are over: what went beyond the first, and what one takes."""
        if number > 1:
            self._beyond += took - first
        self._more += (took - first) / (number - 1) if number > 1 else took

    @property
    def elapsed(self) -> float:
        """Since the run began."""
        return self._now() - self._start

    @property
    def late(self) -> bool:
        """Whether the part takes what others need."""
        return self._latest is not None and self._now() >= self._latest

    def left(self) -> float:
        """What will probably still pass, by how long everything took last time."""
        took = sum(self._took.values())
        pace = took / self._foreseen if self._foreseen else 1.0
        now = max(self._needs.whole(self._most) * pace - (self._now() - self._began), 0.0)
        left = now + pace * sum(each.whole(self._most) for each in self._coming.values())
        if self._budget is None:
            return left
        return min(left, max(self._budget - self.elapsed, 0.0))


class Took:
    """What parts needed on this machine, kept in a file from run to run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._known: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._known = {}

    def get(self, key: str, default: Needs) -> Needs:
        """What is known, or a guess where nobody has measured yet."""
        found = self._known.get(key)
        return Needs(*map(float, found)) if isinstance(found, list) else default

    def put(self, key: str, needs: Needs) -> None:
        """Remember for the next run."""
        self._known[key] = [round(each, 1) for each in needs]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._known, indent=1), encoding="utf-8")
