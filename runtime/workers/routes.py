"""The routes that all workers should follow; for a repository, the part of a runtime that has them.

A worker that is asked for a change works it out, and asks here before it counts. Only one change
follows on another: a worker that had not followed the last one yet is refused. What is accepted is
written to the folder, and then sent to every worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from runtime.errors import Overtaken, UnknownEndpoint
from runtime.routing.history import Histories, History
from runtime.routing.route import Route
from runtime.routing.written import EDITED, as_data, as_toml, from_toml
from runtime.service.endpoint import Endpoint
from runtime.workers.desired import NOTHING, Name


class FleetRoutes(Histories):
    """The version of an endpoint that answers, in every worker."""

    def _named(self, name: str) -> Name:
        raise NotImplementedError

    def _change(self, name: str, change: Callable[[Name], Name]) -> None:
        raise NotImplementedError

    def table(self) -> Mapping[str, Name]:
        """The models as all workers should have them."""
        raise NotImplementedError

    def _ask_a_worker(self, kind: str, body: object) -> None:
        raise NotImplementedError

    # --- for a repository --------------------------------------------------------------------

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
        self._ask_a_worker("check", {"name": name, "route": as_data(route)})

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

    # --- for workers -------------------------------------------------------------------------

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

    def _forget(self, name: str) -> None:
        """The endpoint is gone, and its route with it."""
        self._histories.pop(name, None)

    def _check_unused(self, name: str, version: str) -> None:
        """Raise InUse where the route of an endpoint that stays names this version."""
        history, owner = self._histories.get(name), f"{name}@{version}"
        if history is not None and len(self._named(name).versions) > 1:
            history[-1].route.check_unused(owner)
