"""The graphs of a runtime: registered like models, and linked again when a model switches.

What graphs need is imported with the first one: a runtime of models alone does without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flour.core.node import Node, topological
from flour.data.batch import Batch, Form
from flour.data.coerce import coerce
from flour.language.flow import Flow
from oven import Plan
from runtime.errors import RuntimeClosed, UnknownEndpoint
from runtime.service.answerers import after
from runtime.service.call import Call
from runtime.service.endpoint import Endpoints
from runtime.service.engines import Answers, Engines, shaped
from runtime.service.private import passed_on
from runtime.service.version import ModelVersion
from scheduler import Engine

if TYPE_CHECKING:
    from runtime.graph.facts import GraphFacts
    from runtime.graph.links import Linked, Links
    from runtime.graph.plan import GraphPlan

log = logging.getLogger("pretzel.graphs")
#: How long requests that wait may still wait when the runtime is closed, unless told otherwise.
DRAIN_SECONDS = 2.0
#: How long a version that is to go waits for graphs that are being linked with another.
FOLLOW_SECONDS = 5.0
#: Operators that only graphs have.
_OPERATORS = frozenset({"ModelCall", "Deferred", "Fetch", "Choose", "ChooseText"})


def is_graph(source: object) -> bool:
    """True if a program names models, waits, or leaves branches out."""
    if type(source).__name__ not in ("Flow", "LateFlow"):  # importers' flows make nodes when asked
        return False
    nodes: list[Node] = source.nodes()  # type: ignore[attr-defined]  # it is a flow
    branches = (item.inputs for item in nodes if item.op.name == "Where")
    behind = ({*topological(i[1:])}.difference(topological(i[:1])) for i in branches)
    refusing = any(each.op.refuses_rows() for items in behind for each in items)
    return refusing or any(item.op.name in _OPERATORS for item in nodes)


def waits(plan: Plan) -> bool:
    """True if a plan runs coroutines, which only graphs can wait for."""
    is_python = any(kind == "python" for kind, _ in plan.program.stage_kinds)
    return is_python and any(item.op.name == "Fetch" for item in plan.flow.nodes())


def _known_by(version: ModelVersion) -> str:
    """The parts of a version that graphs depend on: its program and its private columns."""
    return " ".join([version.digest, *sorted(version.hides)])


class Graphs:
    """Links graphs, and follows the models that they use."""

    def __init__(
        self,
        endpoints: Endpoints,
        take: Callable[[ModelVersion], Plan],
        register: Callable[..., str],
        engines: Engines,
    ) -> None:
        self._endpoints, self._take, self._register = endpoints, take, register
        self._engines = engines
        self._links: Links | None = None
        self._follower: threading.Thread | None = None
        self._lock = threading.Lock()

    def plan(self, owner: str, graph: Flow, **options: object) -> tuple[Plan, Linked]:
        """The plan of a graph that is to be registered as `owner`, and what it was linked with."""
        if self._links is None:
            from runtime.graph.links import Links

            self._links = Links(self._find, self._others, self._engines)
        plan, linked = self._links.plan(owner, graph, **options)
        made: Any = plan  # a GraphPlan has what the runtime asks of a plan
        return made, linked

    def _find(self, address: str) -> tuple[str, str, Plan]:
        """The version at an address: its own address, digest and plan."""
        version = self._endpoints.find(address)
        return version.owner, _known_by(version), self._take(version)

    def _others(self, name: str) -> list[str]:
        """The versions of a name beside the one in service: those before it, newest first."""
        versions = [each.owner for each in self._endpoints.all() if each.name == name]
        place = versions.index(self._endpoints.find(name).owner) if versions else 0
        return versions[:place][::-1] + versions[place + 1 :]

    def notes(
        self, linked: Linked | None, plan: Plan, given: Mapping[str, object] | None
    ) -> Mapping[str, object] | None:
        """The notes of a graph: what is private in its models is so in the graph."""
        if linked is None:
            return given
        linked.notes = given
        hidden = passed_on(
            linked.graph, plan.inputs, lambda address: self._endpoints.find(address).hides
        )
        own: Any = (given or {}).get("private", ())
        if not hidden or isinstance(own, str):  # what is no list of columns is refused later
            return given
        return {**(given or {}), "private": sorted({*own, *hidden})}

    def registered(self, version: ModelVersion, linked: Linked | None) -> None:
        """A version was registered: graphs that use its name or its address may follow."""
        if self._links is None:
            return
        if linked is None:
            self._links.remove(version.owner)
        else:
            self._links.add(linked)
            if linked.problem:
                log.warning("graph %s cannot follow its models: %s", linked.owner, linked.problem)
        self.changed()

    def check_fits(self, owner: str, plan: Plan) -> None:
        """Raise InUse if graphs use a version, and another plan in its place does not fit them."""
        if self._links is not None:
            self._links.check_fits(owner, plan)

    def check_free(self, name: str, version: str | None) -> None:
        """Raise InUse for a version that a graph needs."""
        if self._links is None:
            return
        own = [each.owner for each in self._endpoints.all() if each.name == name]
        leaving = {owner for owner in own if version is None or owner == f"{name}@{version}"}
        follower = self._follower
        if follower is not None and any(map(self._links.users, leaving)):
            follower.join(FOLLOW_SECONDS)  # they may be about to use another one
        for owner in leaving:
            self._links.check_free(owner, leaving)

    def removed(self, version: ModelVersion) -> None:
        """A version was taken out."""
        if self._links is not None:
            self._links.remove(version.owner)

    # --- following ---------------------------------------------------------------------------

    def changed(self) -> None:
        """A name may have another version: graphs that follow it are linked again, elsewhere."""
        if self._links is None or not self._links.stale(self._digest):
            return
        with self._lock:
            if self._follower is None:
                self._follower = threading.Thread(
                    target=self._follow, name="pretzel-link", daemon=True
                )
                self._follower.start()

    def _digest(self, address: str) -> str | None:
        version = self._version(address)
        return None if version is None else _known_by(version)

    def _version(self, address: str) -> ModelVersion | None:
        with suppress(UnknownEndpoint, RuntimeClosed):
            return self._endpoints.find(address)
        return None

    def _follow(self) -> None:
        links = self._links
        assert links is not None, "there are graphs to be linked"
        while True:
            with self._lock:
                stale = links.stale(self._digest)
                if not stale:
                    self._follower = None
                    return
            for linked in stale:
                linked.tried = {address: self._digest(address) for address in linked.tried}
                self._link_again(linked)

    def _link_again(self, linked: Linked) -> None:
        """Put a newly linked graph in its own place; where that fails, the old one stays."""
        former = self._version(linked.owner)
        if former is None:
            return
        try:
            self._register(
                *(former.name, linked.graph, former.version),
                reserve=former.reserved,
                activate=False,
                replace=True,
                notes=linked.notes,
                **{**linked.options, "background": False},
            )
        except Exception as problem:  # noqa: BLE001 (the graph goes on with the models it has)
            linked.problem = str(problem).splitlines()[0]
            log.warning("graph %s cannot follow its models: %s", linked.owner, problem)

    def facts(self, owner: str) -> GraphFacts | None:
        """Describe a graph; None for any other version, and for a dropped one.

        A name alone is the version in service.
        """
        if "@" not in owner and (current := self._version(owner)) is not None:
            owner = current.owner
        linked = None if self._links is None else self._links.get(owner)
        version = self._version(owner)
        plan = None if version is None else version.plan
        if linked is None or plan is None:
            return None
        from runtime.graph.facts import facts

        return facts(linked.uses, linked.problem, plan)

    def users(self, owner: str) -> list[str]:
        """The graphs that use a version."""
        return [] if self._links is None else self._links.users(owner)

    # --- requests that wait ------------------------------------------------------------------

    def submit(
        self, version: ModelVersion, data: object, call: Call, *, apart: bool = False
    ) -> Future[Answers]:
        """A future of the answers of a graph that waits; `apart`, never on this thread's loop."""
        batch = data if isinstance(data, Batch) else version.read(data)
        counter = version.counts.inline
        if call.engine is Engine.BATCH:
            counter, apart = version.counts.batch, True
            self._engines.check_room(version, call.priority)
        version.seen(batch)
        made: Any = self._take(version)
        plan: GraphPlan = made
        if batch.kind is Form.ROW or batch.kind is Form.DOCUMENT:
            soon = plan.submit_row(batch.data, call.outputs, call.timeout, apart=apart)
            if soon is not None:
                counter.tick()
                return soon
        columns, rows = coerce(plan.inputs, batch.block)
        counter.tick()
        coming = plan.submit(columns, rows, call.outputs, call.timeout, apart=apart)
        if not batch.single:
            return coming
        return after(coming, lambda made: shaped(made, call.outputs, single=True))

    def close(self, seconds: float) -> None:
        """Let what waits end in so many seconds, and give up the rest."""
        if self._links is not None:
            self._links.close(seconds)
