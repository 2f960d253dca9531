"""Experiments of all workers together: the supervisor's part, which asks each what it has counted.

A rollout is judged here, and its steps are changes of the route as any other. What is counted in
workers is part of the state that they should have, so one that comes later counts, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from flour.core.errors import FlourError
from runtime.rollout import REPORTERS, STEP_SECONDS, judged
from runtime.routing.comparison import ComparisonCounts
from runtime.service.following import Claim, Judged, Report, is_late
from runtime.workers.desired import NOTHING
from runtime.workers.routes import FleetRoutes

#: Time that workers have to tell what they counted. One that did not answer in time is not asked
#: again before it does.
TELL_SECONDS = 0.5
#: The same for what they compared, which may be computed.
COMPARE_SECONDS = 10.0


class Line(Protocol):
    """A channel to another process."""

    def ask(self, kind: str, body: object = None) -> Future[Any]:
        """Send a question; returns the future of its answer."""


class Telling(Protocol):
    """A worker that can be asked."""

    line: Line
    late: Future[Any] | None


class FleetExperiments(FleetRoutes):
    """The part of an owner that a rollout needs: see `runtime.rollout.owner.Owner`."""

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

    def serving(self) -> Sequence[Telling]:
        """The workers that take requests."""
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

    def champion(self, name: str) -> str:
        """The version in service, as "name@version"."""
        self.check_there(name)
        return f"{name}@{self._named(name).current}"

    def _forget(self, name: str) -> None:
        super()._forget(name)
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
