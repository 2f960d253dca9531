"""The stacks of endpoints: which version answers a request, and the answerers above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.routing.blocks import Places
from runtime.routing.route import Route
from runtime.routing.row import names_by_position
from runtime.service.answerers import (
    Answerer,
    KeepingAnswers,
    Parted,
    Redacted,
    Shadowed,
    Tallied,
    Tenanted,
)
from runtime.service.endpoint import Endpoints
from runtime.service.routes import Routes
from runtime.service.version import ModelVersion

_NOTHING: Mapping[str, str] = {}


#: The version that answers a request (the first one, where several answer the rows of a block), the
#: stack to be called with it, and the versions that a route chose; empty where there is no choice.
Opened = tuple[ModelVersion, Answerer, str]
#: An endpoint until something changes: its route, the columns of rows without names if that reads
#: them, and by address what is opened for a version, put together when it is first chosen.
_Endpoint = tuple[Route | None, Sequence[str], dict[str, Opened]]


class Stacks:
    """The stacks of a runtime's endpoints above one answerer, each put together once.

    They are kept in `Endpoints.opened`, which is a new dict after each change.
    """

    def __init__(
        self, base: Answerer, endpoints: Endpoints, routes: Routes, *, redacts: bool = True
    ) -> None:
        """`base` answers for a version; unless it `redacts`, its caller hides private values."""
        self.base, self._endpoints, self._routes, self._redacts = base, endpoints, routes, redacts

    def open(
        self, name: str, data: object, headers: Mapping[str, str] = _NOTHING, tenant: str = ""
    ) -> Opened:
        """The version that answers this request, and its stack.

        The names of `headers` are in lower case.
        """
        every = self._endpoints.opened
        known = every.get(self)
        if known is None:
            known = every.setdefault(self, {})
        endpoint = known.get(name)
        if endpoint is None:
            endpoint = self._look(name)
        route, names, opened = endpoint
        owner = name
        if route is not None:
            if route.reads_rows:
                parts = self._routes.by_version(name, data, headers, tenant)
                if parts is not None:
                    return self._parted(known, name, endpoint, parts)
            owner = route.choose(data, headers, tenant, names)
        return opened.get(owner) or self._add(known, name, endpoint, owner)

    def _look(self, name: str) -> _Endpoint:
        route, names = None, list[str]()
        if self._routes.has_route(name):
            route = self._routes.history(name)[-1].route
            if route.reads_rows:
                names += names_by_position(self._endpoints.champions[name].inputs)
        return route, names, {}

    def _add(
        self, known: dict[str, _Endpoint], name: str, endpoint: _Endpoint, owner: str
    ) -> Opened:
        """Put the stack of a version together; names of which there is none are not kept."""
        version, (route, _, every) = self._endpoints.find(owner), endpoint
        owners = "" if route is None or route.is_direct else version.owner
        opened = every[owner] = version, self._stack(version, route), owners
        known[name] = endpoint
        return opened

    def _parted(
        self,
        known: dict[str, _Endpoint],
        name: str,
        endpoint: _Endpoint,
        parts: Mapping[str, Places],
    ) -> Opened:
        """The versions that answer the rows of a block, each of them some."""
        every = [endpoint[2].get(each) or self._add(known, name, endpoint, each) for each in parts]
        if len(every) == 1:
            return every[0]
        rows = zip(every, parts.values(), strict=True)
        stack = Parted([(version, stack, places) for (version, stack, _), places in rows])
        return every[0][0], stack, ", ".join(parts)

    def _stack(self, version: ModelVersion, route: Route | None) -> Answerer:
        """The answerers of a version, the first one first."""
        made, routes = self.base, self._routes
        if version.private and self._redacts:
            made = Redacted(made)
        if route is not None:
            noting = routes.experiments.tallies.get(version.name)
            if noting is not None:
                made = Tallied(made, noting)
            if version.owner == route.champion and route.shadow is not None:
                made = Shadowed(made, routes.mirrors, route)
        keepers = routes.keepers(version.name)
        if keepers:
            made = KeepingAnswers(made, keepers)
        return Tenanted(made) if routes.by_tenant[version.name] > 0 else made
