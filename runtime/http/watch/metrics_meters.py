"""Request counts and durations by method, route, model, version and status.

A request costs one look-up here. Labels come from registered models and from routes, never from
text that clients send, so the number of series is bounded by models, routes and statuses.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import NamedTuple

from runtime.http.routes import REMEMBERED
from runtime.http.snapshots import BOUNDS, Distribution, Family
from runtime.http.wire.loop_fairness import gently
from runtime.http.wire.messages import Request, Response

#: The route label of requests that match no route.
NOWHERE = "other"


class Series(NamedTuple):
    """The labels of one series: requests that agree in all of them are counted together."""

    method: str
    route: str
    model: str
    version: str
    status: int


class Meters:
    """Counts requests. Only the event loop's thread counts; any thread may read."""

    def __init__(self, route: Callable[[str, str], str | None]) -> None:
        """Count by route; `route` maps a method and a path to one."""
        self._route = route
        self._series: dict[Series, Distribution] = {}
        self._quick: dict[tuple[str, str, int, str | None], Distribution] = {}

    def __call__(self, request: Request, response: Response, seconds: float) -> None:
        """Count a request."""
        front = request.front
        owner = None if front is None else front.version.owner
        key = request.method, request.path, response.status, owner
        durations = self._quick.get(key)
        if durations is None:
            durations = self._quick[key] = self._find(request, response)
        # `record`, inlined: this runs for every request.
        durations.counts[bisect_left(BOUNDS, seconds)] += 1
        durations.total += seconds

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
        """Drop the series of versions that are not among these owners."""
        gone = [
            key
            for key in tuple(self._series)
            if key.model and f"{key.model}@{key.version}" not in owners
        ]
        if gone:
            for key in gone:
                self._series.pop(key, None)
            self._quick = {}  # a new dict: the event loop may be reading the old one

    def durations(self) -> dict[tuple[str, str, str], Distribution]:
        """Durations by route, model and version, over all methods and statuses."""
        totals: dict[tuple[str, str, str], Distribution] = {}
        for key, one in gently(tuple(self._series.items())):
            labels = key.route, key.model, key.version
            totals[labels] = totals[labels].plus(one) if labels in totals else one
        return totals

    def families(self) -> list[Family]:
        """The counts and durations as metric families."""
        requests = Family("pretzel_http_requests_total", "counter", "Requests that were answered.")
        for key, one in gently(tuple(self._series.items())):
            requests.add(one.count, **{**key._asdict(), "status": str(key.status)})
        duration = Family(
            "pretzel_http_request_duration_seconds",
            "histogram",
            "From the arrival of a request to its answer being handed to the system.",
        )
        for (route, model, version), distribution in gently(self.durations().items()):
            duration.add(distribution, route=route, model=model, version=version)
        return [requests, duration]
