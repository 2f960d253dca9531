"""The routes of a runtime: the version that answers an endpoint, and what follows its answers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from objectstore import Explained
from runtime.errors import BadCall, BadRegistration, UnknownEndpoint
from runtime.routing.blocks import Places, length
from runtime.routing.history import Histories, History
from runtime.routing.pairs import Answers
from runtime.routing.route import Route
from runtime.routing.row import PLAIN, names_by_position
from runtime.routing.shadows import Shadows, ShadowStats
from runtime.service.asking import unkept
from runtime.service.endpoint import Endpoints
from runtime.service.engines import Engines
from runtime.service.experiments import Experiments
from runtime.service.following import Judged, Keeper
from runtime.service.mirrors import Mirrors
from runtime.service.version import ModelVersion

#: The priority of what shadows are asked: below all that callers ask for.
LOWEST = -(1 << 30)
_NOTHING: Mapping[str, str] = {}


class ServingRuntime(Protocol):
    """A runtime, as those know it who watch it or keep its answers."""

    endpoints: Endpoints
    routes: Routes


class Routes(Histories):
    """The version that an endpoint answers with, and the work beside each answer.

    An endpoint whose champion answers everything stands in the table that `predict` looks its name
    up in. Any other one is found by the way that is taken where a name is not in the table, so
    endpoints without such a route pay nothing for it. A change is one assignment: a request sees
    the route before it or the one after it.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        engines: Engines,
        ask: Callable[..., Answers],
        switched: Callable[[], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`ask` answers for shadows; `switched` is called when another version may answer."""
        super().__init__(clock)
        self._endpoints, self._switched = endpoints, switched
        #: The keepers of endpoints' answers, by name and kind: "answers" (runtime.provenance) and
        #: "feedback" (runtime.feedback).
        self._keepers: dict[str, dict[str, Keeper]] = {}
        #: Endpoints of whose calls the tenant is wanted, with how many want it.
        self.by_tenant: Counter[str] = Counter()
        self.experiments = experiments = Experiments(endpoints, self, self.refresh)
        hand_over = partial(engines.elsewhere, priority=LOWEST)
        self.shadows = Shadows(unkept(ask), hand_over, experiments.observers, self._may_wait)
        #: What machine code answers although there is a route.
        self.mirrors = Mirrors(
            *(endpoints, self._histories, self.shadows, experiments.tallies, experiments.pairs)
        )

    # --- looking -----------------------------------------------------------------------------

    def routed(self, name: str) -> Route | None:
        """The route of an endpoint, if there is more to it than a champion."""
        history = self._histories.get(name)
        return None if history is None or history[-1].route.is_direct else history[-1].route

    def in_service(self, version: ModelVersion) -> bool:
        """True if a version answers requests under the bare name, all or some of them."""
        route = self.routed(version.name)
        if route is None:
            return self._endpoints.serves(version)
        return version.owner in route.answering and version.name not in self._endpoints.muted

    @property
    def muted(self) -> Mapping[str, str]:
        """Endpoints that answer nothing under their name, with the reason."""
        muted = dict(self._endpoints.muted)
        return {name: why for name, why in muted.items() if name in self._endpoints.champions}

    def shadow_stats(self) -> tuple[ShadowStats, ...]:
        """The requests that each shadow was asked, and those shed."""
        return tuple(
            replace(each, way=self.mirrors.state(each.challenger.partition("@")[0]))
            for each in self.shadows.stats()
        )

    def _may_wait(self, route: Route) -> bool:
        """True if a version of a route is a graph that waits."""
        with suppress(UnknownEndpoint):  # it was taken out
            return any(self._endpoints.find(each).waits for each in route.addresses)
        return False

    # --- changing ----------------------------------------------------------------------------

    def switch(self, name: str, version: str) -> None:
        """Let another version answer an endpoint without a route."""
        self._endpoints.check_open()
        with self._changing:
            if name in self._histories:
                raise BadCall(
                    "this endpoint has a route, which says what answers",
                    where=name,
                    hint=f"promote({name!r}, '{name}@{version}')",
                )
            self._endpoints.switch(name, version)
        self._switched()

    def mute(self, name: str, reason: str) -> None:
        """Answer nothing under a name whose route cannot be read; versions answer by address."""
        if name not in self._histories:
            self._endpoints.mute(name, reason)
            self._switched()

    def unmute(self, name: str) -> None:
        """Let the version in service answer again, as there is no route to be read."""
        self._endpoints.unmute(name)
        self._switched()

    def check_there(self, name: str) -> None:
        """Raise UnknownEndpoint unless there is an endpoint of this name."""
        self._endpoints.find(name)

    def check_route(self, name: str, route: Route) -> None:
        """Raise unless the versions of a route are there, and its conditions can be read."""
        for address in route.addresses:
            foreign = "@" not in address and name in self._endpoints.champions
            version = None if foreign else self._endpoints.find(address)
            if version is None or version.owner != address or version.name != name:
                raise BadRegistration(
                    f"a route of {name!r} names its versions: the one in service may change",
                    found=repr(address),
                    hint=f"for instance {self._endpoints.champions[name].owner!r}",
                )
        route.check(self._endpoints.find(route.champion).inputs)

    def _check_versions(self, name: str, route: Route) -> None:
        self._endpoints.check_open()
        self.check_route(name, route)

    def _apply(self, name: str, history: History) -> None:
        route = history[-1].route
        if route.shadow is not None:
            self.shadows.start()
        with self._endpoints.lock:
            self._histories[name] = history
            self._endpoints.muted.pop(name, None)
            self._endpoints.serve(name, route.champion, direct=route.is_direct)
            self.mirrors.refresh(name)
        self._switched()

    def removed(self, name: str, version: str | None) -> list[ModelVersion]:
        """Take a version out, or the endpoint with its route; refuse one that the route names."""
        with self._changing:
            history = self._histories.get(name)
            several = any(each.name == name and len(each.versions) > 1 for each in self._endpoints)
            if version is not None and history is not None and several:
                history[-1].route.check_unused(f"{name}@{version}")
            gone = self._endpoints.remove(name, version)
            if name in self._endpoints.champions:
                self._hold(name)  # it may hide less
            else:
                self._histories.pop(name, None)
                keepers = self._keepers.pop(name, {})
                for each in (*keepers.values(), *self.experiments.forget(name)):
                    if each is not None:
                        each.end()
                self.mirrors.refresh(name)
            return gone

    def refresh(self, name: str) -> None:
        """Have the stacks of an endpoint put together anew, and its shadow asked as it may be."""
        self._endpoints.changed()
        self.mirrors.refresh(name)

    def registered(self, version: ModelVersion) -> None:
        """A version has taken another's place, or has private columns."""
        self.mirrors.refresh(version.name)
        self.experiments.conceal(version.name)

    def close(self) -> None:
        """Ask shadows no more; let all answers that were noted be written, and rollouts end."""
        self.shadows.close()
        ends: list[Keeper | Judged] = [e for name in self._keepers for e in self.keepers(name)]
        for each in (*ends, *self.experiments.rollouts.values()):
            each.end()

    # --- what is done beside each answer -------------------------------------------------------

    def keeper(self, name: str, kind: str = "answers") -> Keeper | None:
        """The keeper of an endpoint's answers, or another kind of one."""
        return self._keepers.get(name, {}).get(kind)

    def keepers(self, name: str) -> tuple[Keeper, ...]:
        """All keepers of an endpoint."""
        return tuple(self._keepers.get(name, {}).values())

    def why(self, answer: str) -> Any:
        """The facts about a kept answer, by its id."""
        for keeper in [each for name in self._keepers for each in self.keepers(name)]:
            if (found := keeper.why(answer)) is not None:
                return found
        raise UnknownEndpoint(
            "no answer of this id is kept",
            found=str(answer)[:80],
            hint="it was dropped, erased or damaged, or its folder is not open: keep(name, folder)",
        )

    def put_keeper(self, name: str, keeper: Keeper | None, kind: str = "answers") -> None:
        """Let an endpoint's answers be kept by this from the next call on, or no more."""
        with self._changing, self._endpoints.lock:
            before = self._keepers.setdefault(name, {}).pop(kind, None)
            if keeper is not None:
                self._keepers[name][kind] = keeper
            self._hold(name)
        if before is not None:
            before.end()

    def want_tenants(self, name: str, *, wanted: bool) -> None:
        """Let watches know the tenants of an endpoint's calls from the next one on, or no more."""
        with self._changing, self._endpoints.lock:
            self.by_tenant[name] = max(0, self.by_tenant[name] + (1 if wanted else -1))
            self._hold(name)

    def _hold(self, name: str) -> None:
        """Take an endpoint out of the table if something is done beside each of its calls."""
        if name not in self._endpoints.champions:
            return
        private = self._endpoints.champions[name].private
        held = bool(self.keepers(name)) or self.by_tenant[name] > 0 or bool(private)
        self._endpoints.hold(name, held=held, direct=self.routed(name) is None)
        self.mirrors.refresh(name)

    # --- answering ---------------------------------------------------------------------------

    def choose(
        self, name: str, data: object, headers: Mapping[str, str] | None = None, tenant: str = ""
    ) -> ModelVersion:
        """The version that answers this request; `submit` takes it in the name's place.

        The names of `headers` are in lower case.
        """
        history = self._histories.get(name)
        if history is None:
            return self._endpoints.find(name)
        route, names = history[-1].route, list[str]()
        if route.reads_rows and type(data) is not dict:
            names += names_by_position(self._endpoints.champions[name].inputs)
        return self._endpoints.find(route.choose(data, headers or _NOTHING, tenant, names))

    def by_version(
        self, name: str, data: object, headers: Mapping[str, str] | None = None, tenant: str = ""
    ) -> dict[str, Places] | None:
        """The rows of a block that each version answers; None for one row, or one for all."""
        if type(data) is dict:
            for value in data.values():
                if type(value) in PLAIN:  # one value is no column, so none is
                    return None
                break
        history = self._histories.get(name)
        route = None if history is None else history[-1].route
        if route is None or not route.reads_rows or tenant in route.tenants:
            return None
        champion = self._endpoints.champions[name]
        try:
            batch = champion.reader.read(data)
        except Explained:  # who answers it says what is wrong
            return None
        number = batch.rows or length(data)
        if batch.single or number is None or number == 1:
            return None
        if not number:
            return {route.champion: []}
        found = route.by_row(data, headers or _NOTHING, tenant, names_by_position(champion.inputs))
        return found if found is not None and sum(map(len, found.values())) == number else None
