"""What is counted of each request: by method, route, model, version and status, with durations.

A request costs one look-up here. Series are made of what is registered and of routes, never of what
clients make up, so there cannot be more than there are models, routes and statuses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import NamedTuple

from runtime.http.loop_fairness import gently
from runtime.http.messages import Request, Response
from runtime.http.metrics_data import BOUNDS, Distribution, Family
from runtime.http.routes import REMEMBERED

#: The route of requests that lead nowhere.
NOWHERE = "other"


class Series(NamedTuple):
    """What requests have in common that are counted together."""

    method: str
    route: str
    model: str
    version: str
    status: int


class Meters:
    """Counts requests. Only the event loop's thread counts; any may read."""

    def __init__(self, route: Callable[[str, str], str | None]) -> None:
        """Count by routes, as `route` knows them by method and path."""
        self._route = route
        self._series: dict[Series, Distribution] = {}
        self._quick: dict[tuple[str, str, int, str | None], Distribution] = {}

    def __call__(self, request: Request, response: Response, seconds: float) -> None:
        """One more request."""
        front = request.front
        owner = None if front is None else front.version.owner
        key = request.method, request.path, response.status, owner
        found = self._quick.get(key)
        if found is None:
            found = self._quick[key] = self._find(request, response)
        # `record`, written out: this is done for every request.
        found.counts[bisect_left(BOUNDS, seconds)] += 1
        found.total += seconds

    def _find(self, request: Request, response: Response) -> Distribution:
        if len(self._quick) >= REMEMBERED:
            self._quick.clear()
        route = self._route(request.method, request.path)
        served = None if request.front is None else request.front.version
        key = Series(
            request.method if route else "",
            route or NOWHERE,
            served.name if served else "",
            served.version if served else "",
            response.status,
        )
        return self._series.setdefault(key, Distribution())

    def forget(self, owners: Collection[str]) -> None:
        """Drop what is of versions that are not among these any more."""
        gone = [
            key
            for key in tuple(self._series)
            if key.model and f"{key.model}@{key.version}" not in owners
        ]
        if gone:
            for key in gone:
                self._series.pop(key, None)
            self._quick = {}  # a new one: the event loop may be about to read it

    def durations(self) -> dict[tuple[str, str, str], Distribution]:
        """By route, model and version, whatever the method and the status."""
        made: dict[tuple[str, str, str], Distribution] = {}
        for key, one in gently(tuple(self._series.items())):
            place = key.route, key.model, key.version
            made[place] = made[place].plus(one) if place in made else one
        return made

    def families(self) -> list[Family]:
        """What was counted."""
        counted = Family("pretzel_http_requests_total", "counter", "Requests that were answered.")
        for key, one in gently(tuple(self._series.items())):
            counted.add(one.count, **{**key._asdict(), "status": str(key.status)})
        took = Family(
            "pretzel_http_request_duration_seconds",
            "histogram",
            "From the last byte of a request to its answer being handed to the system.",
        )
        for (route, model, version), durations in gently(self.durations().items()):
            took.add(durations, route=route, model=model, version=version)
        return [counted, took]
