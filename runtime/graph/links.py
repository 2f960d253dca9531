"""The models that each graph uses: found at registration, asked when models come, switch and go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flour.core.errors import FlourError
from flour.language.flow import Flow, without_unread
from flour.language.late import addresses, is_graph
from flour.language.link import link
from oven import Plan
from runtime.errors import BadRegistration, InUse, in_use
from runtime.graph.loop_thread import LoopThread
from runtime.graph.plan import GraphPlan, graph_plan
from runtime.graph.threads import Threads

#: "name" or "name@version" to the version that answers: its address, digest and plan.
Take = Callable[[str], tuple[str, str, Any]]
#: The digest of what answers under an address now; None where nothing does.
Digest = Callable[[str], str | None]


@dataclass(eq=False)
class Linked:
    """A registered graph, and the versions that it was linked with."""

    owner: str
    graph: Flow
    options: dict[str, Any]
    uses: dict[str, str] = field(default_factory=dict)
    """By address, as it was written: the version that was found there."""
    notes: Mapping[str, object] | None = None
    """Those of the registration, without what is known from its models."""
    tried: dict[str, str | None] = field(default_factory=dict)
    """By address: the digest of the program that it was last linked with, or that failed."""
    problem: str = ""
    """Why it could not follow a model that has switched; empty where it has."""


class Links:
    """The graphs of a runtime."""

    def __init__(self, take: Take, threads: Threads) -> None:
        self._take, self._loop, self._threads = take, LoopThread(), threads
        self._lock = threading.Lock()
        self._graphs: dict[str, Linked] = {}

    def plan(self, owner: str, graph: Flow, **options: Any) -> tuple[Plan | GraphPlan, Linked]:
        """The plan of a graph that is to be registered as `owner`."""
        made = Linked(owner, graph, options)
        name = _name(owner)
        found: dict[str, Any] = {}
        for address in addresses(graph):
            if address == owner or self._reaches(address, name, set()):
                raise BadRegistration(
                    f"graph {name!r} would need its own answer",
                    where=owner,
                    found=f"it uses {address!r}"
                    + ("" if address == name else f", which leads to {name!r}"),
                    hint="a graph has no cycles; a version can be pinned: name@version",
                )
            made.uses[address], made.tried[address], found[address] = self._take(address)
        written = without_unread(_linked(graph, lambda address: found[address].flow))
        optimised = _linked(graph, lambda address: found[address].optimised)
        optimised = optimised.retype(**written.inputs())
        plan = graph_plan(written, optimised, owner, self._loop, self._threads, **options)
        return plan, made

    def _reaches(self, address: str, name: str, seen: set[str]) -> bool:
        """True if following an address leads to this name."""
        if address == name:
            return True
        if "@" in address or address in seen:
            return False
        seen.add(address)
        with self._lock:
            known = [each for each in self._graphs.values() if _name(each.owner) == address]
        return any(self._reaches(other, name, seen) for each in known for other in each.uses)

    def add(self, linked: Linked) -> None:
        """A graph has been registered, or linked again."""
        with self._lock:
            self._graphs[linked.owner] = linked

    def remove(self, owner: str) -> None:
        """A version has been taken out."""
        with self._lock:
            self._graphs.pop(owner, None)

    def get(self, owner: str) -> Linked | None:
        """The graph that is registered as this version."""
        return self._graphs.get(owner)

    def users(self, owner: str) -> list[str]:
        """The graphs that use a version."""
        with self._lock:
            return [each.owner for each in self._graphs.values() if owner in each.uses.values()]

    def check_free(self, owner: str, leaving: set[str]) -> None:
        """Raise InUse if a graph that stays uses this version."""
        users = [each for each in self.users(owner) if each not in leaving]
        if users:
            raise in_use(owner, users)

    def check_fits(self, owner: str, plan: Plan) -> None:
        """Raise InUse unless the graphs that use a version can be linked with another plan."""
        with self._lock:
            using = [each for each in self._graphs.values() if owner in each.uses.values()]
        for each in using:

            def find(address: str, uses: Mapping[str, str] = each.uses) -> Flow:
                found: Flow = (plan if uses[address] == owner else self._take(address)[2]).flow
                return found

            try:
                _linked(each.graph, find)
            except FlourError as problem:
                raise InUse(
                    "a graph uses this version, and the model in its place does not fit",
                    where=owner,
                    found=f"{each.owner}: {problem.what}",
                    hint="register the model under another name, or mend the graph first",
                ) from problem

    def stale(self, digest: Digest) -> list[Linked]:
        """The graphs that were linked with other versions than answer now."""
        with self._lock:
            every = list(self._graphs.values())
        return [
            each
            for each in every
            if any(digest(address) not in (None, tried) for address, tried in each.tried.items())
        ]

    def close(self, seconds: float) -> None:
        """End the event loop of requests that wait, which have so many seconds left."""
        self._loop.close(seconds)


def _name(owner: str) -> str:
    return owner.partition("@")[0]


def _linked(graph: Flow, find: Callable[[str], Flow]) -> Flow:
    if is_graph(graph):
        return link(graph, find)
    return graph
