"""The models that each graph uses: found at registration, asked when models come, switch and go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, product
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
#: Choices of versions that a graph is tried with where those in service do not fit it.
MOST_TRIED = 64


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

    def __init__(self, take: Take, others: Callable[[str], list[str]], threads: Threads) -> None:
        """`others` has the other versions of a name, in the order in which they are tried."""
        self._take, self._others = take, others
        self._loop, self._threads = LoopThread(), threads
        self._lock = threading.Lock()
        self._graphs: dict[str, Linked] = {}

    def plan(self, owner: str, graph: Flow, **options: Any) -> tuple[Plan | GraphPlan, Linked]:
        """The plan of a graph that is to be registered as `owner`."""
        made = Linked(owner, graph, options)
        name = _name(owner)
        found: dict[str, tuple[str, str, Any]] = {}
        for address in addresses(graph):
            if address == owner or self._reaches(address, name, set()):
                raise BadRegistration(
                    f"graph {name!r} would need its own answer",
                    where=owner,
                    found=f"it uses {address!r}"
                    + ("" if address == name else f", which leads to {name!r}"),
                    hint="a graph has no cycles; a version can be pinned: name@version",
                )
            found[address] = self._take(address)
            made.tried[address] = found[address][1]
        try:
            written = _linked(graph, lambda address: found[address][2].flow)
        except FlourError as problem:
            found, written = self._with_others(graph, [*found], problem)
            made.problem = (
                f"{problem.what}; it goes on with {', '.join(v[0] for v in found.values())}"
            )
        made.uses = {address: version[0] for address, version in found.items()}
        made.tried.update({v[0]: v[1] for v in found.values() if v[0] not in made.tried})
        written = without_unread(written)
        optimised = _linked(graph, lambda address: found[address][2].program.optimised)
        optimised = optimised.retype(**written.inputs())
        plan = graph_plan(written, optimised, owner, self._loop, self._threads, **options)
        return plan, made

    def _with_others(
        self, graph: Flow, names: Sequence[str], problem: FlourError
    ) -> tuple[dict[str, tuple[str, str, Any]], Flow]:
        """Link a graph with other versions of the names it follows, as those in service do not fit.

        Every process takes the same ones, also one that starts when the graph cannot follow.
        """
        choices = product(*([each, *self._others(each)] for each in names))
        for chosen in islice(choices, 1, MOST_TRIED):
            found = {name: self._take(each) for name, each in zip(names, chosen, strict=True)}
            flows: dict[str, Flow] = {name: version[2].flow for name, version in found.items()}
            with suppress(FlourError):
                return found, _linked(graph, flows.__getitem__)
        raise problem

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
    return link(graph, find) if is_graph(graph) else graph
