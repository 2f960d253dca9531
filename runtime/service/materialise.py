"""Sub-plan materialisation: what several plans compute from the same input is computed once.

Versions whose programs begin alike form a group. Their common first part becomes a plan of its
own, whose recent results are kept by the input's digest; the rest of each becomes another. That
costs something: looking the input up, and what fusing across the cut would have saved. So it is
tried for some calls, measured, and used only where it pays; from time to time it is tried again
(see runtime.service.groups).
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import NamedTuple

import oven
from flour.core.errors import FlourError
from flour.core.node import Node, node, readers, rebuild
from flour.core.source import Source
from flour.core.types import Vector
from flour.language.flow import Flow
from oven import Plan
from oven.plans.background import shared as background
from oven.plans.skeleton import digests_in
from runtime.service.entry import SAMPLE
from runtime.service.groups import (
    CANDIDATE_SECONDS,
    DETOUR_SECONDS,
    Group,
    GroupStats,
    Mean,
    SharedVersion,
)
from runtime.service.results import Results
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


#: Making a plan's two parts takes so long, or as long as it has lately: calls have to have taken
#: several times as much before that is worth a try.
BUILD_SECONDS = 2.5e-3
BUILD_TIMES = 4


def _promises(version: ModelVersion, plan: Plan, prefix: Plan, seconds: float) -> bool:
    """True if the common part is a large enough share of a call to pay for looking it up."""
    if version.grows or prefix.code.row_work is None or not plan.code.row_work:
        return True  # unknown before it was tried
    return seconds * prefix.code.row_work / plan.code.row_work >= CANDIDATE_SECONDS


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
        self._building_takes = Mean(without=1)  # the first one pays for what is imported
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

    def _build(self, version: ModelVersion, plan: Plan, seconds: float) -> None:
        start = time.thread_time()
        parts = cut(plan.flow, lambda item: self._nodes.get(item.digest, 0) > 1)
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
