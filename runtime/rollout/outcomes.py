"""What a champion and its challenger did while a rollout is on: counts, and who answered whom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from math import isfinite
from threading import Lock
from typing import Any

from runtime.errors import BadCall
from runtime.rollout.criteria import AGREEMENT, ERRORS, Counts, Criterion, is_percentile
from scheduler import Overloaded

#: Requests whose version is remembered, for values that are reported later.
REMEMBERED = 100_000
#: All requests of a version; the count of no criterion has this name.
ANSWERS = "answers"
RESERVED = frozenset({AGREEMENT, ANSWERS, ERRORS})


class Outcomes:
    """Counts by version. Requests that were refused for want of room count as none."""

    def __init__(self, owners: Iterable[str], criteria: Iterable[Criterion]) -> None:
        self._limits = [(one.metric, one.seconds) for one in criteria if one.seconds is not None]
        self._counts: dict[str, dict[str, list[float]]] = {owner: {} for owner in owners}
        self._requests: OrderedDict[str, tuple[str, set[str]]] = OrderedDict()
        self._lock = Lock()
        #: Values that were reported for requests which are not remembered, or twice.
        self.unknown = 0

    def note(self, owner: str, seconds: float, error: object, request: str = "") -> None:
        """Count a request that this version answered, or failed with an error."""
        counts = self._counts.get(owner)
        if counts is None or isinstance(error, Overloaded):
            return
        with self._lock:
            _add(counts, ANSWERS, 1.0)
            _add(counts, ERRORS, float(error is not None))
            for metric, limit in self._limits:
                _add(counts, metric, float(seconds >= limit))
            if request:
                self._requests[request] = owner, set()
                if len(self._requests) > REMEMBERED:
                    self._requests.popitem(last=False)

    def report(self, request: str, values: Mapping[str, float]) -> bool:
        """Count values of a request that became known later; whether it is remembered."""
        for name, value in values.items():
            if name in RESERVED or is_percentile(name):
                raise BadCall("this is counted without being reported", found=str(name)[:80])
            if _is_share(value):
                continue
            raise BadCall(
                "a value that is reported is a number from 0 to 1",
                where=str(name)[:80],
                found=repr(value)[:80],
                hint="divide it by the largest that it can be",
            )
        with self._lock:
            owner, told = self._requests.get(request, ("", set[str]()))
            fresh = [name for name in values if name not in told]
            self.unknown += len(values) - len(fresh) if owner else len(values)
            for name in fresh if owner else ():
                told.add(name)
                _add(self._counts[owner], name, float(values[name]))
        return bool(owner)

    def counts(self, owner: str) -> dict[str, Counts]:
        """What was counted of a version."""
        with self._lock:
            found = self._counts[owner]
            return {name: Counts(total, int(count)) for name, (total, count) in found.items()}

    def to_data(self) -> dict[str, Any]:
        """All counts, to be written down; requests are not."""
        with self._lock:
            return {
                owner: {name: list(pair) for name, pair in found.items()}
                for owner, found in self._counts.items()
            }

    def take_over(self, data: Mapping[str, Mapping[str, Iterable[float]]]) -> None:
        """Go on with counts that were written down."""
        for owner, found in self._counts.items():
            for name, pair in data.get(owner, {}).items():
                total, count = map(float, pair)
                if not 0 <= total <= count < 1e15:
                    raise ValueError(f"{name} {total} of {count}")
                found[name] = [total, count]


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value) and 0 <= value <= 1


def _add(counts: dict[str, list[float]], name: str, value: float) -> None:
    found = counts.get(name)
    if found is None:
        found = counts[name] = [0.0, 0.0]
    found[0] += value
    found[1] += 1.0
