"""Measured times of calls: on their callers' threads, and chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic

from oven.run.helpers import Told
from runtime.service.version import ModelVersion
from scheduler import CostModel, Curve, Settings

#: What a call takes that was never measured: for itself, and for the bytes that it touches.
BASE_SECONDS = 3e-6
BYTES_A_SECOND = 2e10
DEFAULTS = Settings()
#: From calls of few rows nothing is concluded about calls of more than this many times as many.
_FARTHER = 16
#: One call in so many, and those whose number is a power of two, tries what was not measured for
#: long.
_EXPLORE = 32
#: Whether cores are free again is looked at after so many seconds without help.
_RETRY = 0.5
#: The weight of the newest call in what helping gains, and of one that tries it again.
_NEW_GAIN, _AGAIN_GAIN = 0.25, 0.6


class Costs:
    """The time of calls by version and size, and what helpers gain.

    A chunk and a call of as many rows are the same work, so both are measured for one curve.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self.model = CostModel(now)
        self._turns: dict[str, int] = {}
        #: By version, and for all versions of a kind; with the time of the last measurement.
        self._gains: dict[str, tuple[float, float]] = {}

    def observe(self, version: ModelVersion, rows: int, seconds: float) -> None:
        """Note the time of a call, or of a chunk."""
        self.model.observe(version.owner, rows, seconds)

    def spend(self, version: ModelVersion, seconds: float) -> None:
        """Note what calls took that one was measured for."""
        self.model.spend(version.owner, seconds)

    def curve(self, version: ModelVersion, rows: int) -> Curve | None:
        """The curve for calls of about this size: measured near it, else worked out.

        A call of one row is mostly overhead and says little of a thousand rows. Neither does the
        code, which does not know the caches. Both say rather too much, so the least counts.
        """
        measured, work = self.model.curve(version.owner), version.learned.row_work
        near = measured is not None and rows <= _FARTHER * measured.most
        if near or work is None or version.grows:  # code says nothing of texts; all are alike
            return measured
        worked_out = Curve.line(BASE_SECONDS, work / BYTES_A_SECOND)
        least = inf if measured is None else measured.seconds(rows)
        return measured if least < worked_out.seconds(rows) else worked_out

    def seconds(self, version: ModelVersion, rows: int) -> float | None:
        """The expected seconds of a call of this many rows; None if nothing is known."""
        curve = self.curve(version, rows)
        return None if curve is None else curve.seconds(rows)

    def explore(self, version: ModelVersion) -> float | None:
        """For a few calls, the moment before which a measurement is too old."""
        turn = self._turns[version.owner] = self._turns.get(version.owner, 0) + 1
        if turn > 1 and (turn & (turn - 1) == 0 or turn % _EXPLORE == 0):
            return self.model.long_ago
        return None

    def learn_together(
        self, version: ModelVersion, rows: int, told: Told, *, sampled: bool
    ) -> None:
        """Note a call that threads have shared in native code: what ranges took, what was gained.

        A helper that the system does not run in time costs nothing, and says nothing.
        """
        ranges, threads, seconds = max(told.ranges, 1), 1 + told.came, told.work
        if told.came:
            together = max(told.elapsed - DEFAULTS.native_dispatch, told.elapsed / threads)
            self.learn_gain(version, seconds / together, threads)
        if sampled:
            self.observe(version, round(rows / ranges), seconds / ranges)
            seconds -= seconds / ranges
        self.spend(version, seconds)

    def learn_gain(self, version: ModelVersion, gain: float, threads: int) -> None:
        """Note how many threads' work was done at once where executors helped a caller.

        The first calls start threads, and others may use the cores, so some are looked at before
        help is given up. What other processes leave of the cores is alike for all native code.
        """
        for key in (version.owner, _kind(version)):
            old, when = self._gains.get(key, (inf, -inf))
            old = min(old if when > self.model.long_ago else inf, threads)
            weight = _NEW_GAIN if old >= threads or self._is_lately(when) else _AGAIN_GAIN
            new = old + weight * (min(gain, threads) - old)
            self._gains[key] = (new, self._now())

    def gain(self, version: ModelVersion) -> float:
        """That number, or that of other versions; infinite where none was measured lately.

        So a call tries help again: others may have used the cores when it gained nothing.
        """
        for key in (version.owner, _kind(version)):
            gain, when = self._gains.get(key, (inf, -inf))
            if self._is_lately(when):
                return gain
        return inf

    def _is_lately(self, when: float) -> bool:
        return when > self._now() - _RETRY

    def forget(self, owner: str) -> None:
        """Forget a version that has gone, after its last call."""
        self.model.forget(owner)
        self._turns.pop(owner, None)
        self._gains.pop(owner, None)


def _kind(version: ModelVersion) -> str:
    """The kind of a version: native code releases the GIL."""
    return "in Python" if version.learned.row_work is None else "native"
