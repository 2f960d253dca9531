"""Sub-plan materialisation: what several plans compute from the same input is computed once.

Versions whose programs begin alike form a group. Their common first part becomes a plan of its
own, whose recent results are kept by the input's digest; the rest of each becomes another. That
costs something: looking the input up, and what fusing across the cut would have saved. So it is
tried for some calls, measured, and used only where it pays; from time to time it is tried again.

    off ──► trial ──► on ──► (no gain any more) ──► off

All of a group switch together, as what one has put there another one finds; but single rows apart
from blocks, as a row has a way of a microsecond that blocks have not.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sized
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import oven
from flour.core.errors import FlourError
from flour.core.node import Node, node, readers, rebuild
from flour.core.reference import public
from flour.core.source import Source
from flour.core.sparse import densify
from flour.core.types import Text, Vector
from flour.data.coerce import coerce
from flour.language.flow import Flow
from oven import Plan
from oven.entry.array_entry import Call as Entry
from oven.plans.background import shared as background
from oven.plans.skeleton import digests_in
from runtime.service.entry import SAMPLE
from runtime.service.results import Results, freeze, key_of
from runtime.service.version import ModelVersion

# Cut programs where they part: what several have in common, and what is left of each.
#
# Nodes are named by their content, operator, parameters and inputs included, so two programs have a
# node in common exactly where they compute the same value from the same input.


#: A vector of this many columns is passed on with its zeros.
SHORT = 4096


class Cut(NamedTuple):
    """A program in two parts; the second one reads what the first one leaves, and nothing else."""

    prefix: Flow
    suffix: Flow
    dense: bool
    """True if the rest reads sparse vectors with their zeros, which is faster for short ones."""

    @property
    def key(self) -> str:
        """Programs with the same first part have the same key."""
        return f"{self.prefix.digest} {self.dense}"


def cut(flow: Flow, is_shared: Callable[[Node], bool]) -> Cut | None:
    """The program cut after all that it shares, or None where there is no such place."""
    roots = tuple(flow.outputs.values())
    shared = {item for item in flow.nodes() if not isinstance(item.op, Source) and is_shared(item)}
    reading = readers(roots)
    edge = [
        item
        for item in flow.nodes()
        if item in shared and (item in roots or any(r not in shared for r in reading[item]))
    ]
    if not edge:
        return None
    labels = {item: f"shared_{index}" for index, item in enumerate(edge)}
    dense = all(map(_is_short, edge))
    suffix = _rest(flow, labels, dense=dense)
    if suffix.types != flow.types:  # an output would be stored differently
        dense = False
        suffix = _rest(flow, labels, dense=False)
    if not suffix.inputs().keys() <= set(labels.values()):
        return None  # it would have to read the data again
    return Cut(Flow({labels[item]: item for item in edge}), suffix, dense)


def _is_short(item: Node) -> bool:
    return isinstance(item.type, Vector) and item.type.width <= SHORT


def _rest(flow: Flow, labels: Mapping[Node, str], *, dense: bool) -> Flow:
    """The program with inputs in the places of some nodes."""

    def change(old: Node, inputs: tuple[Node, ...]) -> Node:
        if old not in labels:
            return node(old.op, inputs)
        kind = old.type
        if dense and isinstance(kind, Vector):
            kind = kind.having(sparse=False)
        return node(Source(labels[old], kind), ())

    roots = rebuild(flow.outputs.values(), change)
    return Flow(dict(zip(flow.outputs, roots, strict=True)))


OFF, TRIAL, ON = "off", "trial", "on"
#: Calls that take less have nothing to gain: looking an input up takes some 3 us.
CANDIDATE_SECONDS = 20e-6
#: What a single row (or few documents) pays besides, as it does not go by the shortest way:
#: measured, and rounded up.
DETOUR_SECONDS = 8e-6
#: Making a plan's two parts takes so long, or as long as it has lately: calls have to have taken
#: several times as much before that is worth a try.
BUILD_SECONDS = 2.5e-3
BUILD_TIMES = 4
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


class _Mean:
    """A mean that follows: plain at first, then weighing new values by a sixteenth.

    So many values at the beginning are left out.
    """

    __slots__ = ("count", "value")

    def __init__(self, without: int = 0) -> None:
        self.value, self.count = 0.0, -without

    def add(self, value: float) -> None:
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
        self.whole, self.first, self.rest = _Mean(), _Mean(), _Mean()
        self._pause = 0
        #: What a call pays for going by the common part, and the clock in it does not see.
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


class Group:
    """Versions that begin alike. Single rows and blocks are measured and decided apart."""

    def __init__(self, number: int, prefix: Plan, *, dense: bool = False) -> None:
        self.number, self.prefix, self.dense = number, prefix, dense
        self.members: dict[str, weakref.ref[ModelVersion]] = {}
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


def _promises(version: ModelVersion, plan: Plan, prefix: Plan, seconds: float) -> bool:
    """True if the common part is a large enough share of a call to pay for looking it up."""
    if version.grows or prefix.code.row_work is None or not plan.code.row_work:
        return True  # unknown before it was tried
    return seconds * prefix.code.row_work / plan.code.row_work >= CANDIDATE_SECONDS


def _by_entry(plan: Plan, entry: Entry, block: object) -> dict[str, Any]:
    return dict(zip(plan.outputs, entry(block), strict=True))


def _own(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _own(column) for name, column in value.items()}
    return np.array(value) if isinstance(value, np.ndarray) else value.copy()


class Materialiser:
    """Finds what registered versions have in common, and lets them share it."""

    def __init__(self, budget: int) -> None:
        self.results = Results(budget)
        self._lock = threading.Lock()
        self._nodes: dict[str, int] = {}  # in how many versions
        self._members: dict[ModelVersion, str] = {}
        self._groups: dict[str, Group] = {}
        self._numbers = 0
        self._looked_at: dict[ModelVersion, int] = {}  # when, in registrations
        #: Seconds that calls of one row, and of more, took so far; less again with each quick one.
        self._spent: dict[ModelVersion, list[float]] = {}
        self._building_takes = _Mean(without=1)  # the first one pays for what is imported
        self._registrations = 0
        self._building: set[Future[None]] = set()

    def join(self, version: ModelVersion, plan: Plan) -> None:
        """A version was registered."""
        if not self.results.budget:
            return
        digests = plan.program.node_digests
        with self._lock:
            self._registrations += 1
            self._members[version] = digests
            for digest in digests_in(digests):
                self._nodes[digest] = self._nodes.get(digest, 0) + 1

    def leave(self, version: ModelVersion) -> None:
        """A version was unregistered: others cannot share with it any more."""
        with self._lock:
            for digest in digests_in(self._members.pop(version, "")):
                self._nodes[digest] -= 1
                if not self._nodes[digest]:
                    del self._nodes[digest]
        self.part(version)

    def part(self, version: ModelVersion) -> None:
        """A version leaves its group, because it goes or its plan is dropped for memory."""
        with self._lock:
            self._looked_at.pop(version, None)
            self._spent.pop(version, None)
            one, version.shared = version.shared, None
            if one is None:
                return
            group = one.group
            group.members.pop(version.owner, None)
            if group.members:
                return
            self._groups = {key: each for key, each in self._groups.items() if each is not group}
        self.results.drop(group.number)

    def consider(
        self, version: ModelVersion, seconds: float, rows: int = 1, calls: int = SAMPLE
    ) -> None:
        """One of so many calls took so long; look, in the background, what it could share."""
        one = version.shared
        if one is not None:
            one.group.way(rows).passed(calls, seconds)
            return
        if self._building or self._looked_at.get(version) == self._registrations:
            return  # one after the other: what the first one takes is what the next must be worth
        if not self._is_worth(version, seconds, rows, calls):
            return
        with self._lock:
            plan = version.plan
            is_member = version in self._members and version.shared is None
            if plan is None or not is_member or self._looked_at.get(version) == self._registrations:
                return
            self._looked_at[version] = self._registrations
        building = background().submit(self._build, version, plan, seconds)
        self._building.add(building)
        building.add_done_callback(self._building.discard)

    def _is_worth(self, version: ModelVersion, seconds: float, rows: int, calls: int) -> bool:
        """True if calls that are slow enough have taken as long as making two parts would."""
        one = rows == 1
        with self._lock:
            if version not in self._members:  # it went while this call was on its way
                return False
            spent = self._spent.setdefault(version, [0.0, 0.0])
        if seconds < CANDIDATE_SECONDS + one * DETOUR_SECONDS:
            spent[one] /= 2
            return False
        spent[one] += calls * seconds
        return spent[one] >= BUILD_TIMES * max(BUILD_SECONDS, self._building_takes.value)

    def settle(self, timeout: float | None = None) -> None:
        """Wait until nothing is being built; for tests, and after a registration."""
        for building in tuple(self._building):
            building.result(timeout)

    def _is_shared(self, item: Node) -> bool:
        return self._nodes.get(item.digest, 0) > 1

    def _build(self, version: ModelVersion, plan: Plan, seconds: float) -> None:
        start = time.thread_time()
        parts = cut(plan.flow, self._is_shared)
        if parts is None:
            return
        try:
            group = self._group(parts, exact=plan.exact)
            if not _promises(version, plan, group.prefix, seconds):
                return
            suffix = oven.bake(parts.suffix, exact=plan.exact, background=False)
        except FlourError:
            return  # a part that cannot be baked alone: the plan goes on as it is
        finally:
            self._building_takes.add(time.thread_time() - start)
        with self._lock:
            if version not in self._members or version.plan is not plan:
                return
            group = self._groups.setdefault(self._key(parts, exact=plan.exact), group)
            group.members[version.owner] = weakref.ref(version)
            version.shared = SharedVersion(group, suffix, self.results)
        group.route()

    def _key(self, parts: Cut, *, exact: bool) -> str:
        return f"{parts.key} {exact}"

    def _group(self, parts: Cut, *, exact: bool) -> Group:
        key = self._key(parts, exact=exact)
        with self._lock:
            group = self._groups.get(key)
        if group is not None:
            return group
        prefix = oven.bake(parts.prefix, exact=exact, background=False)
        with self._lock:
            self._numbers += 1
            return self._groups.setdefault(key, Group(self._numbers, prefix, dense=parts.dense))

    def stats(self) -> tuple[GroupStats, ...]:
        """Figures of each group."""
        with self._lock:
            groups = [group for group in self._groups.values() if group.members]
            return tuple(
                GroupStats(
                    members=tuple(sorted(group.members)),
                    mode=group.mode,
                    row_mode=group.rows.mode,
                    block_mode=group.blocks.mode,
                    hits=group.rows.hits + group.blocks.hits,
                    misses=group.rows.misses + group.blocks.misses,
                    whole_seconds=way.whole.value,
                    prefix_seconds=way.first.value,
                    suffix_seconds=way.rest.value,
                )
                for group in groups
                for way in [max(group.rows, group.blocks, key=lambda way: way.hits + way.misses)]
            )
