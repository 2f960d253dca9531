"""Keeps a worker's runtime in the state that the supervisor prescribes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from flour.language.graph_file import is_graph_file
from objectstore import Explained
from runtime.errors import InUse, NotInStep, Rejected, UnknownEndpoint
from runtime.http.wire.interfaces import ModelState
from runtime.repository.listing import reason_of, without_directories
from runtime.rollout import OutcomeCounts
from runtime.routing.written import EDITED, from_data, from_toml
from runtime.runtime import Runtime
from runtime.service.endpoint import SETTLE_SECONDS
from runtime.workers.desired import NOTHING, Name, Version

log = logging.getLogger("pretzel.workers")


class ChangeFollower:
    """Follows changes one by one. For one thread."""

    def __init__(self, runtime: Runtime, located: Callable[[str], Path] = Path) -> None:
        """`located` tells which file of this machine is meant by the path of a plan."""
        self._runtime, self._located = runtime, located
        self._held: dict[str, Name] = {}
        self._wanted: dict[str, Name] = {}
        #: The number of the last change that it has followed, by the supervisor's count.
        self.generation = -1
        #: The reasons of versions that could not be loaded, by "name@version".
        self.failed: dict[str, str] = {}
        #: Routes that this worker changed itself, as the supervisor will send them, too.
        self._own: list[tuple[str, str]] = []
        #: The reason last logged for each version that cannot be loaded.
        self._logged: dict[tuple[str, str], str] = {}

    def seen(self, state: ModelState) -> ModelState:
        """The state of a version here: unavailable if that failed, loading if it is to come."""
        if (reason := self.failed.get(state.address)) is not None:
            return replace(state, state="UNAVAILABLE", reason=reason, refused=False)
        there = state.version in self._held.get(state.name, NOTHING).versions
        return state if there or state.state != "READY" else replace(state, state="LOADING")

    def whole(self, generation: int, names: Mapping[str, Any]) -> None:
        """Apply the whole table, after any missed change."""
        self._wanted = {name: Name.of_json(wanted) for name, wanted in names.items()}
        self._follow_all([*names, *(self._held.keys() - names.keys())])
        self.generation = generation

    def change(self, generation: int, name: str, wanted: Mapping[str, Any]) -> None:
        """Apply one change, which has to be the next one; graphs may have waited for it."""
        if generation != self.generation + 1:
            raise NotInStep(
                "a change was missed", found=f"{generation} came after {self.generation}"
            )
        self._wanted[name] = Name.of_json(wanted)
        self._follow_all([name, *self._waiting()])
        self.generation = generation

    def attempt(self, name: str, version: str, wanted: Mapping[str, Any]) -> None:
        """Load a version before the other workers do; a failure changes nothing."""
        plan = Name.of_json(wanted).versions[version]
        problem = self._register(name, version, plan, passing=UnknownEndpoint)
        if problem:
            raise Rejected("a worker cannot load this", where=f"{name}@{version}", found=problem)

    def check(self, name: str, route: Mapping[str, Any]) -> None:
        """Raise unless the endpoint can follow this route; nothing changes."""
        self._runtime.routes.check_route(name, from_data(route, f"{name}/{EDITED}"))

    def expect(self, name: str, route: str) -> None:
        """Take no notice of this route when it comes: it is in force by then, or was overtaken."""
        self._own.append((name, route))

    # --- names -------------------------------------------------------------------------------

    def _follow_all(self, names: Sequence[str]) -> None:
        """Follow names, some again once others have come or gone: graphs need their models."""
        left, before = dict.fromkeys(names), -1
        while left:
            for name in left:
                self._follow(name, self._wanted.get(name, NOTHING))
            left = dict.fromkeys(self._waiting())
            if len(self.failed) == before:
                break
            before = len(self.failed)
        self._runtime.endpoints.settle(SETTLE_SECONDS)

    def _waiting(self) -> list[str]:
        """The names for which another one may help: of graphs, and of what graphs use."""
        waiting = []
        for address in self.failed:
            name, _, version = address.rpartition("@")
            plan = self._wanted.get(name, NOTHING).versions.get(version)
            if plan is None or is_graph_file(plan.path):
                waiting.append(name)
        return waiting

    def _follow(self, name: str, wanted: Name) -> None:
        """Load versions, switch, then unload others: so that requests always find a version."""
        if wanted.route or wanted.muted:
            self._runtime.routes.mute(name, wanted.muted or f"{name}/{EDITED} is not read yet")
        for address in [each for each in self.failed if each.rpartition("@")[0] == name]:
            del self.failed[address]
        for version, plan in wanted.versions.items():
            problem = self._register(name, version, plan)
            if problem:
                self.failed[f"{name}@{version}"] = problem
        held = self._held.get(name, NOTHING)
        if wanted.route:
            self._take_route(name, wanted.route, held)
        elif wanted.versions and not wanted.muted:
            if wanted.current in held.versions:
                self._runtime.switch(name, wanted.current)
            self._runtime.routes.unmute(name)
        self._count(name, wanted)
        gone = [version for version in held.versions if version not in wanted.versions]
        try:
            self._leave(name, gone, held)
        except InUse as problem:
            self.failed[f"{name}@{gone[-1]}"] = reason_of(problem)

    def _count(self, name: str, wanted: Name) -> None:
        """Count for the supervisor what it wants to know of an endpoint's requests."""
        try:
            self._runtime.experiments.count(name, wanted.counted, OutcomeCounts)
            if wanted.compared:
                self._runtime.experiments.compare(name)
        except Explained:
            log.exception("the requests of %s cannot be counted", name)

    def _take_route(self, name: str, route: str, held: Name) -> None:
        """Follow a route; one that cannot be followed changes nothing, or the name is mute."""
        own = (name, route) in self._own
        self._own = [each for each in self._own if each != (name, route)]
        if held.route == route:
            return
        try:
            if not own:
                where = f"{name}/{EDITED}"
                self._runtime.routes.restore(name, lambda: from_toml(route, where, 0.0))
        except Explained as problem:
            log.exception("the route of %s cannot be followed", name)
            self._runtime.routes.mute(name, reason_of(problem))
            return
        if name in self._held:
            self._held[name] = replace(self._held[name], route=route)

    def _register(
        self, name: str, version: str, plan: Version, passing: type[Exception] | tuple[()] = ()
    ) -> str:
        """Load a version; returns the reason if that fails, but for `passing`, else no text."""
        held = self._held.get(name, NOTHING)
        former = held.versions.get(version)
        if former is not None and former.serial == plan.serial:
            return ""
        try:
            self._runtime.register(
                name,
                self._located(plan.path),
                version,
                activate=False,
                replace=former is not None,
                notes=plan.notes,
            )
        except passing:  # what it needs may come
            raise
        # After a plan that cannot be loaded, the others are still served.
        except Exception as problem:
            reason = reason_of(problem) if isinstance(problem, Explained) else repr(problem)[:300]
            if self._logged.get((name, version)) != reason:  # it is tried again every second
                trace = None if isinstance(problem, Explained) else problem
                self._logged[name, version] = reason
                log.error(  # noqa: TRY400 (an explained problem needs no traceback)
                    "%s@%s cannot be loaded: %s", name, version, problem, exc_info=trace
                )
            return without_directories(reason, "")
        self._logged.pop((name, version), None)
        self._held[name] = held.having(version, plan, activate=False)
        return ""

    def _leave(self, name: str, gone: list[str], held: Name) -> None:
        left = held
        for version in gone:
            left = left.without(version)
        if gone and not left.versions:
            with suppress(UnknownEndpoint):
                self._runtime.unregister(name)
            del self._held[name]
            return
        for version in gone:
            # The version to be in service could not be loaded.
            if version == self._runtime.endpoints.find(name).version:
                self._runtime.switch(name, list(left.versions)[-1])
            self._runtime.unregister(name, version)
        if gone:
            self._held[name] = left
