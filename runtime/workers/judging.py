"""Routes and experiments of all workers together: the supervisor's part, which asks each worker.

A rollout is judged here, and its steps are changes of the route as any other. What is counted in
workers is part of the state that they should have, so one that comes later counts, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from flour.core.errors import FlourError
from runtime.errors import ChannelClosed, Overtaken, UnknownEndpoint
from runtime.rollout import REPORTERS, STEP_SECONDS, judged
from runtime.routing.comparison import ComparisonCounts
from runtime.routing.history import Histories, History
from runtime.routing.route import Route
from runtime.routing.written import EDITED, as_data, as_toml, from_toml
from runtime.service.endpoint import Endpoint
from runtime.service.following import Claim, Judged, Report, is_late
from runtime.workers.channel import End
from runtime.workers.desired import NOTHING, Name

#: Time that workers have to tell what they counted. One that did not answer in time is not asked
#: again before it does.
TELL_SECONDS = 0.5
#: The same for what they compared, which may be computed.
COMPARE_SECONDS = 10.0
#: Time limit for a question: a worker that is changing a route itself may not answer before that.
ASK_SECONDS = 5.0


class Member:
    """A worker, and the last change sent to it."""

    def __init__(self, number: int, line: End) -> None:
        self.number, self.line = number, line
        self.serving = False
        """True if it takes requests, or will before the next change reaches it."""
        self.opened = False
        """True if it has confirmed that it takes requests."""
        self.last: Future[Any] | None = None
        """The answer to the last change sent to it."""
        self.shown: Future[Any] | None = None
        """The answer to the last index sent to it."""
        self.late: Future[Any] | None = None
        """The answer to what it counted that was not there in time."""

    def __repr__(self) -> str:
        return f"Member({self.number})"


class FleetExperiments(Histories):
    """The routes that all workers follow, and what a rollout needs: `runtime.rollout.owner.Owner`.

    A worker that is asked for a change of a route works it out, and asks here before it counts.
    Only one change follows on another: a worker that had not followed the last one yet is refused.
    What is accepted is written to the folder, and then sent to every worker.
    """

    _lock: AbstractContextManager[bool]

    def __init__(self) -> None:
        super().__init__()
        self.rollouts: dict[str, Judged] = {}
        self.on_rollout: Callable[[str, Mapping[str, Any]], object] | None = None
        self.lost: Callable[[str], str] = lambda _address: ""
        #: By endpoint what each worker has compared, with those that have ended.
        self._compared: dict[str, dict[str, ComparisonCounts]] = {}
        self._comparing = Lock()

    @property
    def routes(self) -> FleetExperiments:
        """The routes that the steps of a rollout change."""
        return self

    @property
    def experiments(self) -> FleetExperiments:
        """The rollouts of these endpoints."""
        return self

    # --- of the fleet ------------------------------------------------------------------------

    def table(self) -> Mapping[str, Name]:
        """The models as all workers should have them."""
        raise NotImplementedError

    def serving(self) -> Sequence[Member]:
        """The workers that take requests."""
        raise NotImplementedError

    def _named(self, name: str) -> Name:
        raise NotImplementedError

    def _change(self, name: str, change: Callable[[Name], Name]) -> None:
        raise NotImplementedError

    def settle(self, seconds: float) -> None:
        """Wait until every worker that takes requests has followed."""
        raise NotImplementedError

    def question(self, kind: str, body: Mapping[str, Any]) -> Callable[[], object] | None:
        """Answer a worker's question of routes and experiments; it may take long."""
        match kind:
            case "route":
                return partial(self.follow, body["name"], body["text"])
            case "settle":
                return partial(self.settle, STEP_SECONDS)
            case "judge":
                return partial(judged, self, body["what"], body["body"])
            case "reports":
                return partial(self.take, body)
        return None

    # --- routes ------------------------------------------------------------------------------

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every endpoint with its versions."""
        return tuple(
            Endpoint(name, each.current, tuple(each.versions))
            for name, each in self.table().items()
            if each.versions
        )

    def mute(self, name: str, reason: str) -> None:
        """Answer nothing under a name whose route cannot be read, unless it has one already."""
        if name not in self._histories and self._named(name).muted != reason:
            self._change(name, lambda now: replace(now, muted=reason))

    def unmute(self, name: str) -> None:
        """Let the version in service answer again, as there is no route to be read."""
        if self._named(name).muted:
            self._change(name, lambda now: replace(now, muted=""))

    def check_there(self, name: str) -> None:
        """Raise UnknownEndpoint unless there is an endpoint of this name."""
        if self._named(name) is NOTHING:
            raise UnknownEndpoint(f"nothing is registered as {name!r}"[:200])

    def check_route(self, name: str, route: Route) -> None:
        """Raise unless a route can be followed; only a worker knows columns for its conditions."""
        self._check_versions(name, route)
        for member in self.serving():  # the first one that can answer
            with suppress(ChannelClosed, Late):
                body = {"name": name, "route": as_data(route)}
                member.line.ask("check", body).result(ASK_SECONDS)
                return

    def _check_versions(self, name: str, route: Route) -> None:
        versions = self._named(name).versions
        for address in route.addresses:
            base, _, version = address.rpartition("@")
            if base != name or version not in versions:
                raise UnknownEndpoint(
                    f"a route of {name!r} names a version that is not there",
                    found=repr(address)[:200],
                    hint="versions: " + ", ".join(list(versions)[-20:]),
                )

    def _apply(self, name: str, history: History, text: str = "") -> None:
        text = text or as_toml(name, history)
        self._histories[name] = history
        self._change(name, lambda now: replace(now, route=text, muted=""))

    def follow(self, name: str, text: str) -> None:
        """Take over a change that a worker worked out from the history it has."""
        with self._changing:
            self.check_there(name)
            history = from_toml(text, f"{name}/{EDITED}", self._clock())
            known = self._histories.get(name, ())
            follows = history[-1].number == (known[-1].number + 1 if known else 0)
            if not follows or known[-1:] != history[-2:-1]:
                raise Overtaken(
                    "the route was changed elsewhere at the same time",
                    where=name,
                    hint="look at it, and ask again",
                )
            self._check_versions(name, history[-1].route)
            if self.on_route is not None:
                self.on_route(name, history)
            self._apply(name, history, text)

    def _check_unused(self, name: str, version: str) -> None:
        """Raise InUse where the route of an endpoint that stays names this version."""
        history, owner = self._histories.get(name), f"{name}@{version}"
        if history is not None and len(self._named(name).versions) > 1:
            history[-1].route.check_unused(owner)

    def champion(self, name: str) -> str:
        """The version in service, as "name@version"."""
        self.check_there(name)
        return f"{name}@{self._named(name).current}"

    def _forget(self, name: str) -> None:
        """The endpoint is gone, and its route with it."""
        self._histories.pop(name, None)
        self._compared.pop(name, None)
        ended = self.rollouts.pop(name, None)
        if ended is not None:
            ended.end()

    # --- rollouts ----------------------------------------------------------------------------

    def build(self, address: str) -> dict[str, str]:
        """The digest of the file that is registered under an address; empty where none is."""
        name, _, version = address.rpartition("@")
        plan = self._named(name).versions.get(version)
        return {} if plan is None else {"file": Path(plan.path).stem}

    def put_rollout(self, name: str, rollout: Judged) -> None:
        """Have what a rollout wants counted in every worker, or no more where it is over."""
        counted = rollout.counted
        with self._lock:
            named = self._named(name)
            if is_late(rollout, self.rollouts.get(name), is_there=named is not NOTHING):
                return
            self.rollouts[name] = rollout
            if named.counted != counted:
                self._change(
                    name, lambda now: replace(now, counted=counted) if now.versions else now
                )

    def reports(self, name: str) -> Iterator[Report]:
        """Workers' counts for the rollout of an endpoint."""
        for reports in self._asked("reports", {"name": name}, TELL_SECONDS):
            yield from reports

    def claims(self, name: str, request: str, names: list[str]) -> Iterator[Claim]:
        """Versions that answered a request, by the workers that remember it."""
        body = {"name": name, "request": request, "names": names}
        for claims in self._asked("claims", body, TELL_SECONDS):
            yield from claims

    def take(self, last: Mapping[str, Sequence[Report]]) -> None:
        """Take over what a worker has counted that is about to end."""
        for name, reports in last.items():
            rollout = self.rollouts.get(name)
            if rollout is not None:
                for each in reports:
                    rollout.take(*each)

    def close(self) -> None:
        """Judge no more; another process may go on with what is written down."""
        for each in list(self.rollouts.values()):
            each.end()

    def compare(self, name: str) -> ComparisonCounts:
        """Differences of a shadow's answers from its champion's in all workers, from now on."""
        self.champion(name)
        if not self._named(name).compared:
            self._change(name, lambda now: replace(now, compared=True) if now.versions else now)
        told = list(map(ComparisonCounts.of_json, self._asked("compared", name, COMPARE_SECONDS)))
        found = ComparisonCounts()
        with self._comparing:
            known = self._compared.setdefault(name, {})
            for each in told:
                known.pop(each.source, None)
                known[each.source] = each
            while len(known) > REPORTERS:  # the first ones are those that were silent for longest
                gone = known.pop(next(iter(known)))
                known[next(iter(known))].take(gone)
            for each in known.values():
                found.take(each)
        hides = any(each.notes.get("private") for each in self._named(name).versions.values())
        if hides and found.first_difference:  # workers that have ended may have told values
            found.first_difference = found.first_difference.partition(": ")[0]
        return found

    def _asked(self, kind: str, body: object, seconds: float) -> Iterator[Any]:
        """Answers of the workers that take requests, and answer in time."""
        end = time.monotonic() + seconds
        known = [each for each in self.serving() if each.late is None or each.late.done()]
        for member, future in [(each, each.line.ask(kind, body)) for each in known]:
            try:
                answer = future.result(max(0.0, end - time.monotonic()))
            except Late:
                member.late = future
            except FlourError:  # it has ended, or has not begun
                continue
            else:
                yield answer
