"""Answers requests by route, in front of a runtime.

router = Router(runtime)
router.route("fraud", champion="fraud@3", split={"fraud@4": 5}, by="user_id")
router.predict("fraud", row).version
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

from flour.core.errors import nearest
from runtime.errors import BadCall, BadRegistration, UnknownEndpoint
from runtime.routing.history import Change, History, extended, rolled_back
from runtime.routing.route import Route
from runtime.service.engines import Answers
from runtime.service.runtime import Runtime

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Routed(NamedTuple):
    """The outputs of a request, and the version ("name@version") that answered."""

    version: str
    outputs: Answers


class Router:
    """The routes of endpoints. Readers take no lock; writers take turns.

    A change is one assignment, compiles nothing, and holds from the next request on. Calls of
    `Runtime.predict` do not pass through here, so that endpoints without a route pay nothing.
    """

    def __init__(self, runtime: Runtime, clock: Callable[[], float] = time.time) -> None:
        """Make a router without routes; `clock` dates the changes."""
        self._runtime, self._clock = runtime, clock
        self._histories: dict[str, History] = {}
        self._lock = Lock()

    def route(  # noqa: PLR0913 (the parts of a route, each with a default)
        self,
        name: str,
        champion: str,
        *,
        split: Mapping[str, float] | None = None,
        by: str | None = None,
        header: str | None = None,
        salt: str | None = None,
        tenants: Mapping[str, str] | None = None,
        who: str = "",
    ) -> Route:
        """Give an endpoint a route, from the next request on.

        All versions are given as "name@version" and have to be registered. The `salt` is the
        endpoint's name unless given: keys fall differently in the splits of other endpoints.
        """
        own_salt = name if salt is None else salt
        made = Route(champion, split or {}, by, header, own_salt, tenants or {})
        self._check(made)
        with self._lock:
            self._extend(name, "route", made, who)
        return made

    def promote(self, name: str, version: str | None = None, *, who: str = "") -> Route:
        """Let a challenger answer as the champion, and end the split; tenants keep their own."""
        with self._lock:
            route = self._history(name)[-1].route
            made = replace(route, champion=version or _only(name, route), split={})
            self._check(made)
            self._extend(name, "promote", made, who)
        return made

    def rollback(self, name: str, *, who: str = "") -> Route:
        """Return to the route before the last change that still stands."""
        with self._lock:
            history = rolled_back(self._history(name), who, self._clock())
            if history is None:
                raise BadCall("there is no earlier route to return to", where=name)
            self._check(history[-1].route)
            self._histories[name] = history
        return history[-1].route

    def history(self, name: str) -> tuple[Change, ...]:
        """The last thousand changes of an endpoint's route, the oldest first."""
        return self._history(name)

    def predict(
        self,
        name: str,
        data: object,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        tenant: str = "",
        **options: Any,
    ) -> Routed:
        """The answer of the version that the route chooses; `options` are `Runtime.predict`'s.

        An endpoint without a route answers with the version in service.
        """
        history = self._histories.get(name)
        if history is None:
            version = self._runtime.find(name).owner
        else:
            version = history[-1].route.choose(data, headers, tenant)
        return Routed(version, self._runtime.predict(version, data, **options))

    def _history(self, name: str) -> History:
        history = self._histories.get(name)
        if history is None:
            raise UnknownEndpoint(
                f"{name!r} has no route", hint=nearest(name, list(self._histories)) or ""
            )
        return history

    def _extend(self, name: str, action: str, route: Route, who: str) -> None:
        history = self._histories.get(name, ())
        self._histories[name] = extended(history, action, route, who, self._clock())

    def _check(self, route: Route) -> None:
        """Raise unless every version of a route is there and named with its version."""
        for address in route.addresses:
            if self._runtime.find(address).owner != address:
                raise BadRegistration(
                    "a route names versions, as the one in service may change",
                    found=repr(address),
                    hint=f"for instance {self._runtime.find(address).owner!r}",
                )


def _only(name: str, route: Route) -> str:
    """The one challenger of a route."""
    if len(route.split) != 1:
        raise BadCall(
            "which challenger is to be promoted is not clear",
            where=name,
            found=f"{len(route.split)} challengers",
            hint="promote(name, version)",
        )
    return next(iter(route.split))
