"""Groups of versions whose programs begin alike: how their calls go, and what sharing has gained.

    off ──► trial ──► on ──► (no gain any more) ──► off

All of a group switch together, as what one has put there another one finds; but single rows apart
from blocks, as a row has a way of a microsecond that blocks have not.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sized
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from flour.core.reference import public
from flour.core.source import Source
from flour.core.sparse import densify
from flour.core.types import Text, Vector
from flour.data.coerce import coerce
from oven import Plan
from oven.entry.array_entry import Call as Entry
from runtime.service.results import Results, freeze, key_of

OFF, TRIAL, ON = "off", "trial", "on"
#: Calls that take less have nothing to gain: looking an input up takes some 3 us.
CANDIDATE_SECONDS = 20e-6
#: Cost of a single row (or few documents) besides, as it does not go by the shortest way:
#: measured, and rounded up.
DETOUR_SECONDS = 8e-6
TRIAL_CALLS = 96  # a quarter of them the ordinary way, to compare
#: A trial may cost several times what its calls would; between two there are so many times as many.
TRIAL_SHARE = 64
LOOKS = 4  # before a trial: one alone may have met with cold caches
REVIEW_CALLS = 256
CHECK_CALLS = 64  # one in so many goes the ordinary way, as that may have become faster
REST_CALLS = 4096  # after a trial that failed; doubled each time
MOST_REST = 1 << 20
GAIN = 0.9  # of the ordinary time: less is not worth the memory


class GroupStats(NamedTuple):
    """Figures of versions with a common first part."""

    members: tuple[str, ...]
    mode: str
    """The one of both below that is further: "off", "trial" or "on"."""
    row_mode: str
    block_mode: str
    """True if the common part is used for single rows, and for blocks."""
    hits: int
    misses: int
    whole_seconds: float
    prefix_seconds: float
    suffix_seconds: float
    """Of a call the ordinary way, of the common part, of the rest with the look-up.

    Of rows or of blocks: of what was looked up more often.
    """

    @property
    def hit_rate(self) -> float:
        """The share of look-ups that found something."""
        return self.hits / max(1, self.hits + self.misses)


class Mean:
    """A mean that follows: plain at first, then weighing new values by a sixteenth.

    So many values at the beginning are left out.
    """

    __slots__ = ("count", "value")

    def __init__(self, without: int = 0) -> None:
        self.value, self.count = 0.0, -without

    def add(self, value: float) -> None:
        """Follow another value."""
        self.count += 1
        if self.count <= 0:
            return
        # An interruption is not a cost.
        value = min(value, 4 * self.value) if self.count > 4 and self.value else value
        self.value += (value - self.value) / min(self.count, 16)


class GroupCalls:
    """Calls of one size on a group: how they go now, and how that has worked out.

    Approximate under threads.
    """

    def __init__(self, members: Sized, changed: Callable[[], None] = lambda: None) -> None:
        self._members, self._changed = members, changed
        self.mode = OFF
        self.calls = self.hits = self.misses = 0
        self._recent = [0, 0]  # hits and look-ups since the last review
        self.whole, self.first, self.rest = Mean(), Mean(), Mean()
        self._pause = 0
        #: Cost of a call by the common part that the clock in it does not see.
        self.detour = 0.0

    def next(self) -> bool:
        """True if the next call goes by the common part."""
        self.calls += 1
        calls = self.calls
        if self.mode is ON:
            if calls >= REVIEW_CALLS:
                self._review()
            return bool(calls % CHECK_CALLS)
        if self.mode is TRIAL:
            if calls >= TRIAL_CALLS * max(1, len(self._members)):
                self._review()
            return bool(calls & 3)
        return False

    def looked(self, *, hit: bool) -> None:
        """Count a look-up."""
        self.hits += hit
        self.misses += not hit
        self._recent[0] += hit
        self._recent[1] += 1

    def _review(self) -> None:
        """Compare what calls take now with what they took the ordinary way."""
        hits, looks = self._recent
        if self.mode is TRIAL:  # nothing could be found at its beginning
            hits = min(looks, round(hits * 1.25))
        cost = self.rest.value + (1 - hits / max(1, looks)) * self.first.value
        if looks and cost + self.detour < GAIN * self.whole.value:
            self._restart(ON)
            self._pause = REST_CALLS
        else:
            self._restart(OFF)
            trial = TRIAL_CALLS * max(1, len(self._members))
            self._pause = min(max(REST_CALLS, TRIAL_SHARE * trial, 2 * self._pause), MOST_REST)

    def _restart(self, mode: str) -> None:
        self.mode, self.calls, self._recent = mode, 0, [0, 0]
        self._changed()

    def passed(self, calls: int, seconds: float) -> None:
        """So many calls have gone, one of them in so many seconds; a trial is due now and then.

        What takes no longer than the look-up is never tried: the trial alone would slow it down.
        """
        if self.mode is not OFF:
            return
        self.calls += calls
        self.whole.add(seconds)
        if self.whole.count < LOOKS:
            return
        if self.calls >= self._pause and self.whole.value >= CANDIDATE_SECONDS + self.detour:
            self._restart(TRIAL)


class GroupMember(Protocol):
    """A version in a group."""

    def open(self) -> None:
        """Open its shortest way, or shut it: the group goes another way from now on."""


class Group:
    """Versions that begin alike. Single rows and blocks are measured and decided apart."""

    def __init__(self, number: int, prefix: Plan, *, dense: bool = False) -> None:
        self.number, self.prefix, self.dense = number, prefix, dense
        self.members: dict[str, weakref.ref[GroupMember]] = {}
        self.rows, self.blocks = (GroupCalls(self.members, self.route) for _ in range(2))
        self.rows.detour = DETOUR_SECONDS
        if [type(kind) for kind in prefix.inputs.values()] == [Text]:
            self.blocks.detour = DETOUR_SECONDS  # few documents have the shortest way, too

    def way(self, rows: int) -> GroupCalls:
        """The way of calls with this many rows."""
        return self.rows if rows == 1 else self.blocks

    @property
    def mode(self) -> str:
        """The one of both that is further."""
        return max(self.rows.mode, self.blocks.mode, key=(OFF, TRIAL, ON).index)

    def route(self) -> None:
        """Open the shortest way for what shares nothing now, shut it for what does."""
        for reference in tuple(self.members.values()):
            version = reference()
            if version is not None:
                version.open()


class SharedVersion:
    """A version as a member of a group: the group's first part, and its own rest."""

    def __init__(self, group: Group, suffix: Plan, results: Results) -> None:
        self.group, self._suffix, self._results = group, suffix, results
        outputs = suffix.program.optimised.outputs.values()
        self._passed_on = any(isinstance(item.op, Source) for item in outputs)
        kinds = list(suffix.inputs.items())
        native = suffix.code.row_work is not None and group.prefix.code.row_work is not None
        # What others do to this machine meanwhile is no reason for either way.
        self._clock = time.thread_time if native else time.perf_counter
        self._entry: Entry | None = None
        if len(kinds) == 1 and isinstance(kinds[0][1], Vector) and not kinds[0][1].sparse:
            self._label, self._entry = kinds[0][0], suffix.entry()

    def run(self, plan: Plan, entry: Entry | None, rows: int, block: object) -> dict[str, Any]:
        """Every output, the common part from memory where it is there.

        A single row that goes the ordinary way has `entry` opened to it, as it has without a group.
        """
        way = self.group.way(rows)
        if not way.next():
            run = plan.run if entry is None or rows > 1 else partial(_by_entry, plan, entry)
            if way.mode is OFF:
                return run(block)
            start = self._clock()
            answers = run(block)
            way.whole.add(self._clock() - start)
            return answers
        start = self._clock()
        key = key_of(block)
        if key is None or plan.variants.of(block) is not None:
            return plan.run(block)
        values = self._results.get(self.group.number, key)
        way.looked(hit=values is not None)
        spent = 0.0
        if values is None:
            before = self._clock()
            values = self._first(block)
            spent = self._clock() - before
            way.first.add(spent)
            self._results.put(self.group.number, key, values)
        answers = self._rest(*values)
        way.rest.add(self._clock() - start - spent)
        return answers

    def _first(self, block: object) -> tuple[Mapping[str, Any], int]:
        columns, rows = coerce(self.group.prefix.inputs, block)
        results = self.group.prefix.run_columns(columns, rows)
        if self.group.dense:
            results = {name: densify(value) for name, value in results.items()}
        freeze(results)
        return results, rows

    def _rest(self, columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
        suffix = self._suffix
        if self._entry is not None and not self._passed_on:
            values = self._entry(columns[self._label])
            return dict(zip(suffix.program.optimised.outputs, values, strict=True))
        outputs = suffix.run_columns(columns, rows)
        kinds = suffix.program.optimised.outputs
        answers = {name: public(value, kinds[name].type) for name, value in outputs.items()}
        if self._passed_on:  # callers may write to what they get
            answers = {name: _own(value) for name, value in answers.items()}
        return answers


def _by_entry(plan: Plan, entry: Entry, block: object) -> dict[str, Any]:
    return dict(zip(plan.outputs, entry(block), strict=True))


def _own(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _own(column) for name, column in value.items()}
    return np.array(value) if isinstance(value, np.ndarray) else value.copy()
