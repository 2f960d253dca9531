"""The part of a runtime that says which version answers: endpoints, their routes, and shadows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import Any, Self

from flour.core.errors import check_names, nearest
from objectstore import Explained
from runtime.errors import BadCall, BadRegistration, UnknownEndpoint
from runtime.routing.blocks import Places, length, merged, taken
from runtime.routing.history import Change, History, extended, rolled_back
from runtime.routing.pairs import Answers
from runtime.routing.route import Route, addressed, promoted
from runtime.routing.row import names_by_position
from runtime.routing.shadows import Shadows, ShadowStats, is_sampled, kept
from runtime.service.asking import asked_by
from runtime.service.endpoint import Endpoint, Endpoints
from runtime.service.engines import Engines
from runtime.service.experiments import Experiments
from runtime.service.extension_points import extension
from runtime.service.following import Judged, Keeper, chained, note_done, together
from runtime.service.mirrors import Mirrors
from runtime.service.private_answers import shown
from runtime.service.version import ModelVersion

#: The priority of what shadows are asked: below all that callers ask for.
LOWEST = -(1 << 30)
_NOTHING: Mapping[str, Any] = {}
_NO_OPTIONS: dict[str, object] = {}

#: A version, and the route whose shadow is to be asked, too.
_Chosen = tuple[ModelVersion, Route | None]
#: The same for the rows of a block at some places, and these rows.
_Part = tuple[_Chosen, Places, Any]


class RoutedEndpoints(Experiments):
    """Endpoints by name, and which of its versions an endpoint answers with.

    An endpoint whose champion answers everything stands in the table that `predict` looks its name
    up in. Any other route is found by the way that is taken where a name is not in the table, so
    endpoints without such a route pay nothing for it. A change is one assignment: a request sees
    the route before it or the one after it.
    """

    #: What a runtime answers with.
    predict: Callable[..., Answers]
    submit: Callable[..., Future[Answers]]
    #: Another version may answer under a name: graphs may have to follow.
    _switched: Callable[[], None]
    _closed: bool

    def __init__(self, engines: Engines, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self._endpoints = Endpoints()
        #: What answers under an address; an endpoint whose route has to be asked is missing.
        self.table = self._routes = self._endpoints.routes
        self._histories: dict[str, History] = {}
        self._clock, self._changing = clock, Lock()
        #: What keeps the answers of endpoints, by name; see runtime.provenance.
        self._keepers: dict[str, Keeper] = {}
        #: Endpoints of whose calls the tenant is wanted, with how many want it.
        self.by_tenant: Counter[str] = Counter()
        hand_over = partial(engines.elsewhere, priority=LOWEST)
        self._shadows = Shadows(self.predict, hand_over, self.observers, self._may_wait)
        #: What machine code answers although there is a route.
        self.mirrors = Mirrors(
            *(self._endpoints, self._histories, self._shadows, self.tallies, self._pairs)
        )
        #: Called with a name and its history before a change counts; what it raises undoes it.
        self.on_route: Callable[[str, tuple[Change, ...]], object] | None = None

    # --- looking -----------------------------------------------------------------------------

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every endpoint with its versions."""
        return self._endpoints.list()

    @property
    def changes(self) -> int:
        """How often what is in service may have changed: for those who follow that."""
        return self._endpoints.changes

    def versions(self) -> dict[str, ModelVersion]:
        """Every registered version, by "name@version"; for those who look, as `find` is."""
        return {each.owner: each for each in self._endpoints.all()}

    @property
    def ready(self) -> bool:
        """Whether no usual call of any version compiles anything, as all code is there."""
        return all(version.ready for version in self._endpoints.all())

    @property
    def closed(self) -> bool:
        """True if it takes no more calls."""
        return self._closed

    @property
    def muted(self) -> Mapping[str, str]:
        """Endpoints that answer nothing under their name, with the reason."""
        muted = dict(self._endpoints.muted)
        return {name: why for name, why in muted.items() if name in self._endpoints.champions}

    def wait(self, timeout: float | None = None) -> Self:
        """This runtime, as soon as it is ready; TimeoutError if that takes longer."""
        end = None if timeout is None else time.monotonic() + timeout
        for version in self._endpoints.all():
            if not version.settled.wait(None if end is None else max(0.0, end - time.monotonic())):
                raise TimeoutError(f"the code of {version.owner} is still being compiled")
        return self

    def watch(self, name: str, **options: object) -> Any:
        """Compare rows in service with reference rows; see runtime.watch.Watch."""
        self._check_open()
        check_names(f"watch({name!r})", extension("watch"), options)
        return extension("watch")(self, name, **options)

    def tap(self, name: str, step: str, *, sample: float = 0.01, to: object = None) -> Any:
        """Collect what a step computes for a share of the rows; see runtime.watch.Tap."""
        self._check_open()
        return extension("tap")(self, name, step, sample=sample, to=to)

    def keep(self, name: str, folder: str | Path, **options: object) -> Any:
        """Keep an endpoint's answers, for `why`; see runtime.provenance.AnswerKeeper."""
        self._check_open()
        check_names(f"keep({name!r})", extension("keep"), options)
        return extension("keep")(self, name, folder, **options)

    def why(self, answer: str) -> Any:
        """What is known of an answer that was kept, by its id; see runtime.provenance.Why."""
        for keeper in dict.fromkeys(self._keepers.values()):
            if (found := keeper.why(answer)) is not None:
                return found
        raise UnknownEndpoint(
            "no answer of this id is kept",
            found=str(answer)[:80],
            hint="it was dropped, erased or damaged, or its folder is not open: keep(name, folder)",
        )

    def put_keeper(self, name: str, keeper: Keeper | None) -> None:
        """Let an endpoint's answers be kept by this from the next call on, or no more."""
        with self._changing, self._endpoints.lock:
            before = self._keepers.pop(name, None)
            if keeper is not None:
                self._keepers[name] = keeper
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
        held = name in self._keepers or self.by_tenant[name] > 0 or bool(private)
        self._endpoints.hold(name, held=held, direct=self.routed(name) is None)
        self.mirrors.refresh(name)

    def _end_keepers(self) -> None:
        """Let all answers that were noted be written, and rollouts end."""
        ends: list[Keeper | Judged] = [*dict.fromkeys(self._keepers.values())]
        for each in (*ends, *self.rollouts.values()):
            each.end()

    def keeper(self, name: str) -> Keeper | None:
        """What keeps the answers of an endpoint."""
        return self._keepers.get(name)

    def routed(self, name: str) -> Route | None:
        """The route of an endpoint, if there is more to it than a champion."""
        history = self._histories.get(name)
        if history is None or history[-1].route.is_direct:
            return None
        return history[-1].route

    def has_route(self, name: str) -> bool:
        """Whether an endpoint was given a route, if only a champion."""
        return name in self._histories

    def history(self, name: str) -> tuple[Change, ...]:
        """The last thousand changes of an endpoint's route, the oldest first."""
        history = self._histories.get(name)
        if history is None:
            self._endpoints.find(name)
            raise UnknownEndpoint(
                f"{name!r} has no route", hint=nearest(name, list(self._histories)) or ""
            )
        return history

    def shadow_stats(self) -> tuple[ShadowStats, ...]:
        """How many requests each shadow was asked, and how many were shed."""
        return tuple(
            replace(each, way=self.mirrors.state(each.challenger.partition("@")[0]))
            for each in self._shadows.stats()
        )

    # --- changing ----------------------------------------------------------------------------

    def switch(self, name: str, version: str | int) -> None:
        """Let another version answer the endpoint's requests, from the next one on."""
        self._check_open()
        with self._changing:
            if name in self._histories:
                raise BadCall(
                    "this endpoint has a route, which says what answers",
                    where=name,
                    hint=f"promote({name!r}, '{name}@{version}')",
                )
            self._endpoints.switch(name, str(version))
        self._switched()

    def route(  # noqa: PLR0913 (the parts of a route, each with a default)
        self,
        name: str,
        champion: str | None = None,
        *,
        split: Mapping[str, float] | None = None,
        by: str | None = None,
        header: str | None = None,
        salt: str | None = None,
        where: str | None = None,
        rules: Mapping[str, str] | None = None,
        otherwise: str | None = None,
        tenants: Mapping[str, str] | None = None,
        shadow: str | None = None,
        sample: float = 1.0,
        inline: bool | None = None,
        who: str = "",
    ) -> Route:
        """Give an endpoint a route, from the next request on; see runtime.routing.Route.

        Versions are given as "name@version", or by their number, and have to be registered.
        `otherwise` is another word for the champion; it is the version in service unless given.
        The `salt` is the endpoint's name unless given: keys fall differently in other splits.
        """
        if champion is not None and otherwise is not None:
            raise BadRegistration("`champion` and `otherwise` are the same", where=name)
        made = Route(
            champion or otherwise or self.find(name).owner,
            *(split or {}, by, header, name if salt is None else salt, where),
            *(rules or {}, tenants or {}, shadow, sample, inline),
        )
        made = addressed(name, made)
        self.put_route(name, made, who=who)
        return made

    def put_route(self, name: str, route: Route, *, action: str = "route", who: str = "") -> None:
        """Give an endpoint this route; `action` is what its history says of the change."""
        with self._changing:
            self._put(name, extended(self._known(name), action, route, who, self._clock()))

    def promote(self, name: str, version: str | int | None = None, *, who: str = "") -> Route:
        """Let a challenger answer as the champion, and end the split, the rules and the shadow.

        Without a `version` it is the one challenger, or the shadow. Tenants keep their own.
        """
        with self._changing:
            history = self._known(name) or self.history(name)
            made = promoted(name, history[-1].route, version)
            self._put(name, extended(history, "promote", made, who, self._clock()))
        return made

    def rollback(self, name: str, *, who: str = "") -> Route:
        """Return to the route before the last change; after a rollout, that is its last step."""
        with self._changing:
            history = rolled_back(self.history(name), who, self._clock())
            if history is None:
                raise BadCall("there is no earlier route to return to", where=name)
            self._put(name, history)
        return history[-1].route

    def restore(self, name: str, read: Callable[[], tuple[Change, ...]]) -> None:
        """Take over a history that was written down; nothing changes while it is read."""
        with self._changing:
            self._put(name, read(), told=True)

    def mute(self, name: str, reason: str) -> None:
        """Answer nothing under a name whose route cannot be read; versions answer by address."""
        if name not in self._histories:
            self._endpoints.mute(name, reason)
            self._switched()

    def unmute(self, name: str) -> None:
        """Let the version in service answer again, as there is no route to be read."""
        self._endpoints.unmute(name)
        self._switched()

    def _known(self, name: str) -> History:
        return self._histories.get(name, ())

    def _put(self, name: str, history: History, *, told: bool = False) -> None:
        """Put a history in force; the last step is the one assignment that requests see."""
        self._check_open()
        route = history[-1].route
        self.check_route(name, route)
        if self.on_route is not None and not told:
            self.on_route(name, history)
        if route.shadow is not None:
            self._shadows.start()
        with self._endpoints.lock:
            self._histories[name] = history
            self._endpoints.muted.pop(name, None)
            self._endpoints.serve(name, route.champion, direct=route.is_direct)
            self.mirrors.refresh(name)
        self._switched()

    def check_route(self, name: str, route: Route) -> None:
        """Raise unless the versions of a route are there, and its conditions can be read."""
        for address in route.addresses:
            version = self._endpoints.find(address)
            if version.owner != address or version.name != name:
                raise BadRegistration(
                    f"a route of {name!r} names its versions: the one in service may change",
                    found=repr(address),
                    hint=f"for instance {self._endpoints.champions[name].owner!r}",
                )
        route.check(self._endpoints.find(route.champion).inputs)

    def _may_wait(self, route: Route) -> bool:
        """Whether a version of a route is a graph that waits."""
        with suppress(UnknownEndpoint):  # it was taken out
            return any(self._endpoints.find(each).waits for each in route.addresses)
        return False

    def _removed(self, name: str, version: str | None) -> list[ModelVersion]:
        """Take a version out, or the endpoint with its route; refuse one that the route names."""
        with self._changing:
            history = self._histories.get(name)
            several = any(each.name == name and len(each.versions) > 1 for each in self.endpoints())
            if version is not None and history is not None and several:
                history[-1].route.check_unused(f"{name}@{version}")
            gone = self._endpoints.remove(name, version)
            if any(each.name == name for each in self.endpoints()):
                self._hold(name)  # it may hide less
            else:
                self._histories.pop(name, None)
                for each in (self._keepers.pop(name, None), *self._forgotten(name)):
                    if each is not None:
                        each.end()
                self.mirrors.refresh(name)
            return gone

    # --- answering ---------------------------------------------------------------------------

    def choose(
        self, name: str, data: object, headers: Mapping[str, str] | None = None, tenant: str = ""
    ) -> ModelVersion:
        """The version that answers this request; `submit` takes it in the name's place.

        The names of `headers` are in lower case.
        """
        return self._chosen(name, data, headers, tenant)[0]

    def _chosen(
        self, name: str, data: object, headers: Mapping[str, str] | None, tenant: str
    ) -> _Chosen:
        """The version, and its route if the shadow of that is to be asked, too."""
        history = self._histories.get(name)
        if history is None:
            return self._find(name), None
        route = history[-1].route
        names: Sequence[str] = ()
        if route.reads_rows and type(data) is not dict:
            names = names_by_position(self._endpoints.champions[name].inputs)
        address = route.choose(data, headers or _NOTHING, tenant, names)
        mirrors = address == route.champion and is_sampled(route)
        return self._find(address), route if mirrors else None

    def by_version(
        self, name: str, data: object, headers: Mapping[str, str] | None = None, tenant: str = ""
    ) -> dict[str, Places] | None:
        """Which rows of a block each version answers; None for one row, or one version for all."""
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

    def _predict_by_route(
        self,
        name: str,
        data: object,
        headers: Mapping[str, str] | None,
        tenant: str,
        options: Mapping[str, Any],
    ) -> Answers:
        """What `predict` answers where the name is not in the table."""
        if tenant and self.by_tenant[str(name).partition("@")[0]] > 0:
            return asked_by(tenant, lambda: self._predict_of(name, data, headers, tenant, options))
        return self._predict_of(name, data, headers, tenant, options)

    def _predict_of(
        self,
        name: str,
        data: object,
        headers: Mapping[str, str] | None,
        tenant: str,
        options: Mapping[str, Any],
    ) -> Answers:
        parts = self.by_version(name, data, headers, tenant)
        if parts is None:
            chosen = self._chosen(name, data, headers, tenant)
            return self._predict_by(chosen, data, headers, options)
        return merged(
            [
                (rows, self._predict_by(chosen, part, headers, options))
                for chosen, rows, part in self._parts(name, data, parts)
            ]
        )

    def _parts(self, name: str, data: object, parts: dict[str, Places]) -> Iterator[_Part]:
        """For each version of a block whether its shadow is asked, too, and its rows."""
        route = self._histories[name][-1].route
        for owner, places in parts.items():
            mirrors = owner == route.champion and is_sampled(route)
            part = taken(data, places) if len(parts) > 1 else data
            yield (self._find(owner), route if mirrors else None), places, part

    def _predict_by(
        self,
        chosen: _Chosen,
        data: object,
        headers: Mapping[str, str] | None,
        options: Mapping[str, Any],
    ) -> Answers:
        version, mirrored = chosen
        keeper = self._keepers.get(version.name)
        rows = data if mirrored is None is keeper else kept(data)
        start, address = perf_counter(), self._endpoints.address(version)
        answers: Answers | Exception
        try:
            answers = self.predict(address, data, **options)
        except Exception as problem:  # noqa: BLE001 (raised below, where it takes nothing along)
            answers = shown(problem, version)
        noting, seconds = self.tallies.get(version.name), perf_counter() - start
        if noting is not None:
            failed = answers if isinstance(answers, Exception) else None
            noting.note(version.owner, seconds, failed, headers)
        if mirrored is not None:
            self.mirrors.ask(mirrored, rows, options, answers, seconds)
        if isinstance(answers, Exception):
            raise answers
        if keeper is None:
            return answers
        return keeper.note(version, rows, options.get("outputs"), answers, headers or _NOTHING)

    def _submit_by_route(
        self,
        name: str,
        data: object,
        headers: Mapping[str, str] | None,
        tenant: str,
        options: Mapping[str, Any],
    ) -> Future[Answers]:
        """What `submit` answers where the name is not in the table."""
        if tenant and self.by_tenant[str(name).partition("@")[0]] > 0:
            return asked_by(tenant, lambda: self._submit_of(name, data, headers, tenant, options))
        return self._submit_of(name, data, headers, tenant, options)

    def _submit_of(
        self,
        name: str,
        data: object,
        headers: Mapping[str, str] | None,
        tenant: str,
        options: Mapping[str, Any],
    ) -> Future[Answers]:
        parts = self.by_version(name, data, headers, tenant)
        if parts is None:
            chosen = self._chosen(name, data, headers, tenant)
            return self._submit_by(chosen, data, headers, options)
        return together(
            [
                (rows, self._submit_by(chosen, part, headers, options))
                for chosen, rows, part in self._parts(name, data, parts)
            ]
        )

    def _submit_by(
        self,
        chosen: _Chosen,
        data: object,
        headers: Mapping[str, str] | None,
        options: Mapping[str, Any],
    ) -> Future[Answers]:
        version, mirrored = chosen
        keeper, outputs = self._keepers.get(version.name), options.get("outputs")
        rows, start = data if mirrored is None is keeper else kept(data), perf_counter()
        refused = None
        try:
            future = self.submit(version, data, **options)
        except Exception as problem:  # noqa: BLE001 (raised below, where it takes nothing along)
            refused = shown(problem, version)
        noting = self.tallies.get(version.name)
        if noting is not None:
            note_done(noting, version.owner, headers, start, refused or future)
        if refused is not None:
            raise refused
        if keeper is not None or version.private:
            note = None if keeper is None else partial(keeper.note, version, rows, outputs)
            future = chained(future, version, note, headers or _NOTHING)
        if mirrored is not None:
            future.add_done_callback(partial(self.mirrors.ask_done, mirrored, rows, outputs, start))
        return future


def options_of(
    outputs: str | Iterable[str] | None,
    timeout: float | None,
    priority: int | None,
    engine: str | None,
) -> dict[str, object]:
    """The options of a call that are given, for another call; one without any takes less time."""
    if outputs is None is timeout and priority is None is engine:
        return _NO_OPTIONS
    given = {"outputs": outputs, "timeout": timeout, "priority": priority, "engine": engine}
    return {name: value for name, value in given.items() if value is not None}
