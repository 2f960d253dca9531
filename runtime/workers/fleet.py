"""The models that all workers should have registered, and their distribution to workers.

To a repository this looks like a runtime. A new plan is tried by one worker first, so that a plan
that crashes its process crashes only one; then it is recorded and sent to all workers. Sending does
not wait: a worker follows changes in the order of its channel. `settle` waits until all have
followed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as Late
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from flour.core.errors import FlourError
from flour.language.graph_file import is_graph_file, models_of
from runtime.errors import ChannelClosed, NotInStep, Rejected, UnknownEndpoint, in_use
from runtime.http.watch.logs import put_level
from runtime.http.wire.interfaces import ModelState
from runtime.workers.channel import RemoteError
from runtime.workers.desired import NOTHING, Name, Version
from runtime.workers.judging import FleetExperiments, Member

#: Time limit for a worker to load a plan that it tries, as for its import; one that hangs is ended.
TRY_SECONDS = 600.0
_LEVEL_SECONDS = 1.0
#: A plan is rejected when this many workers have ended while trying it.
_TRIES = 2


class Fleet(FleetExperiments):
    """The table of models that should be registered. Safe to use from several threads."""

    def __init__(self) -> None:
        super().__init__()
        self.generation = 0
        self._names: dict[str, Name] = {}
        self._members: list[Member] = []
        self._index: list[Any] = []
        self._shown: Sequence[ModelState] = ()
        self._level = ""
        self._serials = count(1)
        self._lock = threading.RLock()

    # --- for a repository --------------------------------------------------------------------

    def register(
        self,
        name: str,
        source: Path,
        version: str,
        *,
        activate: bool = True,
        replace: bool = False,
        notes: Mapping[str, object] | None = None,
    ) -> str:
        """Let every worker serve the plan in a file; with `replace` or not, the last one counts."""
        self._stage(source)
        needs = tuple(models_of(source)) if is_graph_file(source) else ()
        for address in needs:
            self._check_there(address, f"{name}@{version}")
        plan = Version(next(self._serials), str(source), dict(notes or {}), needs)
        wanted = self._named(name).having(version, plan, activate=activate)
        self._try(name, version, wanted)
        self._change(name, lambda now: now.having(version, plan, activate=activate))
        return version

    def _stage(self, source: Path) -> None:
        """Put a plan where workers find it; those of this machine see its file."""

    def switch(self, name: str, version: str) -> None:
        """Switch an endpoint to another version, in every worker."""
        if version not in self._named(name).versions:
            raise UnknownEndpoint(f"endpoint {name!r} has no version {version!r}")
        if self._named(name).current != version:
            self._change(name, lambda now: now.answering(version))

    def unregister(self, name: str, version: str | None = None) -> None:
        """Unregister a version, or the endpoint with its route, in every worker."""
        named = self._named(name)
        if named is NOTHING or version not in {None, *named.versions}:
            raise UnknownEndpoint(f"endpoint {name!r} has no version {version!r}")
        if version is None:
            self._check_free(name, *named.versions)
            self._change(name, lambda _: NOTHING)
            return
        self._check_unused(name, version)
        self._check_free(name, version)
        self._change(name, lambda now: now.without(version))

    def _check_there(self, address: str, graph: str) -> None:
        """Raise UnknownEndpoint unless every worker has what a graph needs, or will have it."""
        name, _, version = address.partition("@")
        versions = self._named(name).versions
        if not versions or (version and version not in versions):
            raise UnknownEndpoint(
                f"nothing is registered as {address!r}"[:200],
                where=graph,
                hint="a graph is loaded when its models are there",
            )

    def _check_free(self, name: str, *going: str) -> None:
        """Raise InUse for versions that a graph needs."""
        addresses = {f"{name}@{version}" for version in going}
        addresses |= set() if {*self._named(name).versions} - {*going} else {name}
        users = [
            f"{user}@{number}"
            for user, wanted in self.table().items()
            for number, plan in wanted.versions.items()
            if user != name and not addresses.isdisjoint(plan.needs)
        ]
        if users:
            raise in_use(min(addresses), users)

    @property
    def count(self) -> int:
        """The number of endpoints."""
        return len(self.endpoints)

    def table(self) -> Mapping[str, Name]:
        """The models as all workers should have them."""
        with self._lock:
            return dict(self._names)

    def _named(self, name: str) -> Name:
        with self._lock:
            return self._names.get(name, NOTHING)

    def _change(self, name: str, change: Callable[[Name], Name]) -> None:
        with self._lock:
            wanted = change(self._names.get(name, NOTHING))
            if wanted != NOTHING:
                self._names[name] = wanted
            else:
                self._names.pop(name, None)
                self._forget(name)
            self.generation += 1
            body = {"generation": self.generation, "name": name, "wanted": wanted.to_json()}
            for member in self._members:
                member.last = member.line.ask("change", body)

    def _try(self, name: str, version: str, wanted: Name) -> None:
        body = {"name": name, "version": version, "wanted": wanted.to_json()}
        ended = 0
        for member in self.serving():
            try:
                member.line.ask("try", body).result(TRY_SECONDS)
            except RemoteError as problem:  # an error of a worker is that of a runtime
                if problem.kind != "UnknownEndpoint":
                    raise
                raise UnknownEndpoint(problem.what, where=f"{name}@{version}") from None
            except ChannelClosed:
                ended += 1
                if ended >= _TRIES:
                    raise Rejected(
                        "workers end while they load this", where=f"{name}@{version}"
                    ) from None
                continue
            except Late:
                self.again(member)  # it may load the plan later: send it the whole table again
                raise NotInStep(
                    "a worker did not load this in time", where=f"{name}@{version}"
                ) from None
            return

    # --- for workers -------------------------------------------------------------------------

    def join(self, member: Member, more: Mapping[str, Any]) -> Future[Any]:
        """Add a worker: send it the whole table, and from now on every change."""
        with self._lock:
            self._members.append(member)
            member.last = member.line.ask("begin", {**more, **self._whole()})
            return member.last

    def open(self, member: Member) -> Future[Any]:
        """Let a worker take requests, after all changes sent so far."""
        with self._lock:
            member.serving = True
            member.last = member.line.ask("open")
            return member.last

    def leave(self, member: Member) -> None:
        """Remove a worker."""
        with self._lock, suppress(ValueError):
            self._members.remove(member)

    def again(self, member: Member) -> None:
        """Send a worker the whole table, as it has missed or failed a change."""
        with self._lock:
            if member in self._members:
                member.last = member.line.ask("whole", self._whole())

    def _whole(self) -> dict[str, Any]:
        names = {name: wanted.to_json() for name, wanted in self._names.items()}
        state = {"generation": self.generation, "names": names, "index": self._index}
        return {**state, "level": self._level}

    def question(self, kind: str, body: Any) -> Callable[[], object] | None:
        """Answer a worker's question; it may take long."""
        return partial(self.put_level, **body) if kind == "level" else super().question(kind, body)

    def put_level(self, level: str) -> None:
        """Have every process log at this level: those that come later, too, or are away."""
        with self._lock:
            self._level = level
            put_level(level)
            asked = [member.line.ask("level", level) for member in self._members]
        wait(asked, _LEVEL_SECONDS)

    def serving(self) -> list[Member]:
        """The workers that take requests."""
        with self._lock:
            return [each for each in self._members if each.serving]

    def show(self, states: Sequence[ModelState]) -> None:
        """Send the index of the folder to every worker, if it has changed."""
        if states is self._shown:  # it is asked for often, and may be long
            return
        index = [
            [each.name, each.version, each.state, each.reason, each.wanted, each.refused]
            for each in states
        ]
        with self._lock:
            self._shown = states
            if index == self._index:
                return
            self._index = index
            for member in self._members:
                member.shown = member.line.ask("index", index)

    def settle(self, seconds: float) -> None:
        """Wait until all that take requests have followed, and know the index; or NotInStep."""
        with self._lock:
            members = [each for each in self._members if each.serving]
            lasts = [(each, last) for each in members for last in (each.last, each.shown)]
        end, behind = time.monotonic() + seconds, list[int]()
        for member, last in lasts:
            try:
                if last is not None and member.number not in behind:
                    last.result(max(0.0, end - time.monotonic()))
            except ChannelClosed:  # it has ended; its successor starts with the whole table
                continue
            except (Late, FlourError):
                behind.append(member.number)
        if behind:
            raise NotInStep(
                "not every worker has followed in time",
                found="behind: " + ", ".join(map(str, behind)),
                hint="they go on trying; ask the index",
            )
