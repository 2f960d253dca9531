"""Counts of champion and challenger during a rollout, and which of them answered whom.

Each process has a tally, and reports all that it has counted so far; the judge keeps the last
report of each process, and adds them up. So a report that is sent twice, late or in another order
counts once, and one that is lost is made up for by the next.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from secrets import token_hex
from threading import Lock
from typing import Any

from runtime.errors import BadCall
from runtime.rollout.criteria import AGREEMENT, ERRORS, UnitSum, is_percentile
from runtime.service.following import Claim, Report
from scheduler import Overloaded

#: Requests whose version is remembered, for values that are reported later.
REMEMBERED = 100_000
#: Processes whose reports are kept apart; the counts of those that were silent for longest are
#: added up, as these processes have ended long ago.
REPORTERS = 500
#: All requests of a version; the count of no criterion has this name.
ANSWERS = "answers"
RESERVED = frozenset({AGREEMENT, ANSWERS, ERRORS})

#: By version and metric: the sum of values, and their number.
_Counted = Mapping[str, Mapping[str, Sequence[float]]]
_Table = dict[str, dict[str, list[float]]]


class OutcomeCounts:
    """The counts of one process. Requests that were refused for want of room count as none."""

    def __init__(self, data: Mapping[str, Any], agreement: Callable[[], tuple[int, int]]) -> None:
        """Begin at zero; `data` is what a rollout says is counted (`Rollout.counted`).

        `agreement` says how many values of both versions were equal so far, of how many.
        """
        self.id, self.counts_on = str(data["id"]), True
        self._limits = [(str(metric), float(limit)) for metric, limit in data["limits"]]
        self._counts: _Table = {owner: {} for owner in data["owners"]}
        self._agreement = agreement if data["agreement"] else None
        if data["agreement"]:
            self._agreed = self._counts[data["owners"][1]][AGREEMENT] = [0.0, 0.0]
            self._seen = agreement()
        self._requests: OrderedDict[str, tuple[str, set[str]]] = OrderedDict()
        self._reporter, self._number, self._lock = token_hex(8), 0, Lock()

    def note(
        self, owner: str, seconds: float, error: object, headers: Mapping[str, str] | None
    ) -> None:
        """Count a request that this version answered, or failed with an error."""
        counts = self._counts.get(owner)
        if counts is None or isinstance(error, Overloaded) or not self.counts_on:
            return
        request = (headers or {}).get("x-request-id", "")
        with self._lock:
            _add(counts, ANSWERS, 1.0)
            _add(counts, ERRORS, float(error is not None))
            for metric, limit in self._limits:
                _add(counts, metric, float(seconds >= limit))
            if request:
                self._requests[request] = owner, set()
                if len(self._requests) > REMEMBERED:
                    self._requests.popitem(last=False)

    def claim(self, request: str, names: Iterable[str]) -> Claim | None:
        """The version that answered a request, and those of the values that are new."""
        with self._lock:
            known = self._requests.get(request)
            if known is None:
                return None
            fresh = [name for name in names if name not in known[1]]
            known[1].update(fresh)
            return known[0], fresh

    def report(self) -> Report:
        """All counts so far, with the name of this tally and a number that rises."""
        with self._lock:
            if self._agreement is not None:
                self._take_agreement(*self._agreement())
            self._number += 1
            return self._reporter, self._number, _copied(self._counts)

    def _take_agreement(self, agreeing: int, values: int) -> None:
        """Count what was compared since the last time; a comparison may have begun anew."""
        before = self._seen if values >= self._seen[1] else (0, 0)
        self._seen = agreeing, values
        self._agreed[0] += agreeing - before[0]
        self._agreed[1] += values - before[1]

    def end(self) -> None:
        """Count no more."""
        self.counts_on = False


class Evidence:
    """The counts of all processes together."""

    def __init__(self, owners: Iterable[str]) -> None:
        #: Values that were reported later, and the counts of processes that ended long ago.
        self._own: _Table = {owner: {} for owner in owners}
        self._reports: OrderedDict[str, tuple[int, _Counted]] = OrderedDict()
        self._lock = Lock()
        #: Values that were reported for requests which are not remembered, or twice.
        self.unknown = 0

    def take(self, reporter: str, number: int, counts: _Counted) -> None:
        """Take a report over, unless a later one of the same process is known."""
        with self._lock:
            if number <= self._reports.get(reporter, (0, {}))[0]:
                return
            self._reports[reporter] = number, counts
            self._reports.move_to_end(reporter)
            if len(self._reports) > REPORTERS:
                _, (_, gone) = self._reports.popitem(last=False)
                for owner, own in self._own.items():
                    _sum(own, gone.get(owner, {}))

    def tell(self, values: Mapping[str, float], claims: Sequence[Claim]) -> bool:
        """Count values of a request; whether a process remembers it.

        A request that was sent again may be remembered by two: a value counts where it is new to
        all of them.
        """
        with self._lock:
            fresh = [name for name in values if all(name in names for _, names in claims)]
            self.unknown += len(values) - len(fresh) if claims else len(values)
            for name in fresh if claims else ():
                _add(self._own[claims[0][0]], name, float(values[name]))
        return bool(claims)

    def counts(self, owner: str) -> dict[str, UnitSum]:
        """The counts of a version."""
        with self._lock:
            total = _copied(self._own)[owner]
            for _, counts in self._reports.values():
                _sum(total, counts.get(owner, {}))
        return {name: UnitSum(each, int(number)) for name, (each, number) in total.items()}

    def to_data(self) -> dict[str, Any]:
        """All counts, to be written down; requests are not."""
        with self._lock:
            reports = {name: list(each) for name, each in self._reports.items()}
            return {"counts": _copied(self._own), "reports": reports}

    def take_over(self, data: Mapping[str, Any]) -> None:
        """Go on with counts that were written down."""
        for owner, own in self._own.items():
            _sum(own, _checked(data["counts"].get(owner, {})))
        for reporter, (number, counts) in data.get("reports", {}).items():
            self.take(reporter, int(number), {name: _checked(counts[name]) for name in counts})


def check_values(values: Mapping[str, object]) -> None:
    """Raise unless these are values that can be reported of a request."""
    for name, value in values.items():
        if name in RESERVED or is_percentile(name):
            raise BadCall("this is counted without being reported", found=str(name)[:80])
        if isinstance(value, int | float) and isfinite(value) and 0 <= value <= 1:
            continue
        raise BadCall(
            "a value that is reported is a number from 0 to 1",
            where=str(name)[:80],
            found=repr(value)[:80],
            hint="divide it by the largest that it can be",
        )


def _checked(found: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    checked = {name: [float(total), float(number)] for name, (total, number) in found.items()}
    for name, (total, number) in checked.items():
        if not 0 <= total <= number < 1e15:
            raise ValueError(f"{name} {total} of {number}")
    return checked


def _copied(table: _Table) -> _Table:
    return {owner: {name: list(pair) for name, pair in of.items()} for owner, of in table.items()}


def _sum(into: dict[str, list[float]], counts: Mapping[str, Sequence[float]]) -> None:
    for name, (total, number) in counts.items():
        found = into.setdefault(name, [0.0, 0.0])
        found[0] += total
        found[1] += number


def _add(counts: dict[str, list[float]], name: str, value: float) -> None:
    found = counts.get(name)
    if found is None:
        found = counts[name] = [0.0, 0.0]
    found[0] += value
    found[1] += 1.0
