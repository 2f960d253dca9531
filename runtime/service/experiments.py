"""Experiments of a runtime: rollouts, what is counted for them, and what compares shadows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from threading import Lock, RLock
from typing import Any, NamedTuple

import numpy as np

from flour.core.errors import is_number, nearest
from flour.core.op import Columns
from flour.core.reference import evaluate
from flour.core.sparse import densify
from flour.data.coerce import coerce
from flour.language.flow import Flow
from runtime.errors import BadCall, UnknownEndpoint
from runtime.routing.comparison import Comparison
from runtime.routing.history import Histories
from runtime.routing.pairs import Pair, PairSink
from runtime.service.endpoint import Endpoints
from runtime.service.following import Claim, Judged, Noting, Report, is_late
from runtime.service.private import column_names
from runtime.service.private_answers import WithoutPrivate
from runtime.service.version import ModelVersion


class NumberedNode(NamedTuple):
    """A node by its operator, and its number among the nodes of that operator."""

    name: str
    number: int


def first_difference(champion: Flow, challenger: Flow, rows: object) -> str | None:
    """The first step, in the champion's order, whose values differ; None where none does.

    Steps of the two are told by their operators and order. A step that only one has is passed over,
    as what follows it differs if it matters.
    """
    one, other = _values(champion, rows), _values(challenger, rows)
    for step, (where, value) in one.items():
        if step in other and not _equal(value, other[step][1]):
            theirs = _short(other[step][1])
            return f"{where}: {_short(value)} and {theirs}"
    missing = [step.name for step in (*one, *other) if step not in one or step not in other]
    return f"only one has {', '.join(dict.fromkeys(missing))}" if missing else None


def _other_inputs(champion: ModelVersion, challenger: ModelVersion) -> str:
    """The inputs that one of two versions reads alone, and a hint: shadows get champions' rows."""
    told = []
    for version, other in ((champion, challenger), (challenger, champion)):
        names = sorted(column_names(version.inputs) - column_names(other.inputs))
        read = (
            f"{', '.join(names)} alone" if names else ", ".join(map(str, version.inputs.values()))
        )
        told.append(f"{version.owner} reads {read[:200]}")
    return f"the inputs; {'; '.join(told)}; register the challenger with the champion's inputs"


def _values(flow: Flow, rows: object) -> dict[NumberedNode, tuple[str, Columns]]:
    columns, _ = coerce(flow.inputs(), rows)
    origins, seen = flow.origins(), Counter[str]()
    made: dict[NumberedNode, tuple[str, Columns]] = {}
    for node, value in evaluate(flow.outputs.values(), columns).items():
        name = node.op.name
        seen[name] += 1
        steps = [each.step for each in origins.get(node, ()) if each.step]
        made[NumberedNode(name, seen[name])] = (
            (f"{node.op.name} of {steps[0]}" if steps else node.op.name),
            value,
        )
    return made


def _equal(one: Columns, other: Columns) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        same = one.keys() == other.keys()
        return same and all(_equal(part, other[name]) for name, part in one.items())
    left, right = np.asarray(densify(one)), np.asarray(densify(other))
    if left.shape != right.shape:
        return False
    if left.dtype.kind == right.dtype.kind == "f":
        return bool(np.array_equal(left, right, equal_nan=True))
    return bool(np.all(left == right))


def _short(value: Columns) -> str:
    return str(densify(value))[:120]


#: Makes what counts requests, of what a rollout wants counted and a function for the agreement.
Counting = Callable[[Mapping[str, Any], Callable[[], tuple[int, int]]], Noting]


class Experiments:
    """The rollouts and comparisons of a runtime's endpoints; see runtime.rollout.owner."""

    def __init__(
        self, endpoints: Endpoints, routes: Histories, changed: Callable[[str], object]
    ) -> None:
        """`changed` is called when something else follows an endpoint's answers."""
        self._endpoints, self.routes, self._changed = endpoints, routes, changed
        #: The observers of pairs of answers, by endpoint.
        self.pairs: dict[str, tuple[PairSink, ...]] = {}
        #: By endpoint and options; "agreement" is that of a rollout, which begins with it.
        self._comparisons: dict[str, dict[object, Comparison]] = {}
        self._observing = RLock()
        #: What counts the requests of endpoints in this process, by name; see runtime.rollout.
        self.tallies: dict[str, Noting] = {}
        #: The rollouts that are judged in this process.
        self.rollouts: dict[str, Judged] = {}
        self._judging = Lock()
        #: Called with a name and what its rollout needs to go on, before that changes anything.
        self.on_rollout: Callable[[str, Mapping[str, Any]], object] | None = None
        #: Why the version of an address could not be loaded again; empty where it could.
        self.lost: Callable[[str], str] = lambda _address: ""

    def champion(self, name: str) -> str:
        """The version in service, as "name@version"."""
        return self._endpoints.find(name).owner

    def build(self, address: str) -> dict[str, str]:
        """Digests of what is registered under "name@version"; empty where nothing is."""
        with suppress(UnknownEndpoint):
            version = self._endpoints.find(address)
            path = version.residence.path if "layout" in version.notes else None
            return {"plan": version.digest, **({} if path is None else {"file": path.stem})}
        return {}

    def put_rollout(self, name: str, rollout: Judged) -> None:
        """Let a rollout have an endpoint's requests counted, or no more where it is over.

        One that ends late, when its endpoint is gone or has another rollout, changes nothing.
        """
        with self._judging:
            is_there = name in self._endpoints.champions
            if is_late(rollout, self.rollouts.get(name), is_there=is_there):
                return
            self.rollouts[name] = rollout
            self.count(name, rollout.counted, rollout.tally)

    def count(self, name: str, counted: Mapping[str, Any], tally: Counting) -> None:
        """Count an endpoint's requests as a rollout wants it; counts go on where it is the same."""
        known = self.tallies.get(name)
        if (None if known is None else known.id) == counted.get("id"):
            return
        if (former := self._comparisons.get(name, {}).get("agreement")) is not None:
            former.close()
        if counted:
            self.tallies[name] = tally(counted, partial(self.agreement, name))
        else:
            self.tallies.pop(name, None)
        if known is not None:
            known.end()
        self._changed(name)

    def reports(self, name: str) -> list[Report]:
        """This process's counts for the rollout of an endpoint."""
        tally = self.tallies.get(name)
        return [] if tally is None else [tally.report()]

    def claims(self, name: str, request: str, names: list[str]) -> list[Claim]:
        """The claim of a version on a request, if this process remembers answering it."""
        tally = self.tallies.get(name)
        claim = None if tally is None else tally.claim(request, names)
        return [] if claim is None else [claim]

    def settle(self, seconds: float) -> None:
        """Return: there is no other process that could be behind."""

    def observe(self, name: str, pairs: PairSink) -> ExitStack:
        """Hand what the champion and its shadow answer to this, too, pair by pair.

        Any number may observe an endpoint; closing what this returns ends this one alone.
        """
        self._endpoints.find(name)
        if not callable(getattr(pairs, "add", None)):
            raise BadCall("what observes has a method `add`", where=name, found=repr(pairs)[:80])
        with self._observing:
            known = self.pairs.get(name, ())
            if not any(each is pairs for each in known):
                self.pairs[name] = (*known, pairs)
        self._changed(name)
        ended = ExitStack()
        ended.callback(self._unobserve, name, pairs)
        return ended

    def _unobserve(self, name: str, pairs: PairSink) -> None:
        with self._observing:
            left = tuple(each for each in self.pairs.get(name, ()) if each is not pairs)
            if left:
                self.pairs[name] = left
            else:
                self.pairs.pop(name, None)
            known = self._comparisons.get(name, {})
            for options in [options for options, each in known.items() if each is pairs]:
                del known[options]
        self._changed(name)

    def observers(self, name: str) -> tuple[PairSink, ...]:
        """Sinks for the pairs of an endpoint, without values that are private now."""
        every, version = self.pairs.get(name, ()), self._endpoints.champions.get(name)
        hides = version is not None and version.private
        return tuple(WithoutPrivate(each, version) for each in every) if hides else every  # type: ignore[arg-type]  # there is a version

    def compare(
        self, name: str, *, tolerance: float = 1e-6, segment: str | None = None
    ) -> Comparison:
        """Differences of the shadow's answers from the champion's, from the first call of this on.

        It goes on counting until it is closed; one of another `tolerance` or `segment` is beside
        it. A segment is a value of a column of the champion's.
        """
        champion = self._endpoints.champions.get(name)
        known = set[str]() if champion is None else column_names(champion.inputs)
        if champion is not None and segment is not None and segment not in known:
            raise BadCall(
                f"there is no column {segment!r} to compare by",
                where=name,
                found="columns: " + ", ".join(sorted(known)),
                hint=nearest(segment, known),
            )
        if not is_number(tolerance) or tolerance < 0:
            raise BadCall("a tolerance is a number, 0 or more", where=name, found=repr(tolerance))
        key = tolerance, segment
        made = Comparison(tolerance, segment=segment, differing=self._differing)
        return self._compared(name, key, made)

    def _compared(self, name: str, key: object, made: Comparison) -> Comparison:
        with self._observing:
            known = self._comparisons.setdefault(name, {})
            if key not in known:
                made.ended = self.observe(name, made)
                known[key] = made
                self.conceal(name)
            return known[key]

    def agreement(self, name: str) -> tuple[int, int]:
        """The values of a shadow that agreed, and all of them, since its rollout compares them."""
        return self._compared(name, "agreement", Comparison(keep=0)).agreement()

    def conceal(self, name: str) -> None:
        """Have comparisons forget the values of columns that are private now."""
        version = self._endpoints.champions.get(name)
        if version is not None and version.private:
            hides = WithoutPrivate(None, version)
            with self._observing:
                for each in self._comparisons.get(name, {}).values():
                    each.conceal(hides.shown, version.private)

    def forget(self, name: str) -> list[Judged | Noting | None]:
        """An endpoint is gone; what judged and counted it, to be ended."""
        with self._observing:
            self.pairs.pop(name, None)
            self._comparisons.pop(name, None)
        with self._judging:
            return [self.rollouts.pop(name, None), self.tallies.pop(name, None)]

    def _differing(self, pair: Pair) -> str:
        """The first difference between the programs of a pair's versions, in words."""
        try:
            version, theirs = map(self._endpoints.find, (pair.champion, pair.challenger))
            if isinstance(pair.found, Exception) and version.inputs != theirs.inputs:
                return _other_inputs(version, theirs)
            one, other = version.plan, theirs.plan
            if one is None or other is None or pair.rows is None:
                return "not known: a plan or the rows are not in memory"
            rows = version.reader.read(pair.rows).block
            told = first_difference(one.flow, other.flow, rows) or "none by the definitions"
            return told.partition(": ")[0] if version.private else told
        except Exception as problem:  # noqa: BLE001 (what is told of a pair must not fail)
            return f"not known: {type(problem).__name__}"
