"""`/metrics`: counters of this process and its peers, in Prometheus' format.

The event loop counts requests as they are answered. All other figures are counted where they arise,
and read for each scrape, on a thread beside the event loop. Several processes on one port ask each
other: a scrape that reaches any of them reads the sums of all.

Request counts and durations by method, route, model, version and status.
A request costs one look-up here. Labels come from registered models and from routes, never from
text that clients send, so the number of series is bounded by models, routes and statuses.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import NamedTuple

from runtime.http.routes import REMEMBERED, HandlerContext
from runtime.http.snapshots import (
    BOUNDS,
    Distribution,
    Family,
    Snapshot,
    SnapshotSource,
    from_json,
    merge,
    to_json,
)
from runtime.http.watch import metrics_process, metrics_rollout, metrics_runtime, metrics_watch
from runtime.http.watch.metrics_energy import Energy
from runtime.http.watch.metrics_runtime import Accountant
from runtime.http.watch.metrics_text import CONTENT_TYPE, exposition, triton_aliases
from runtime.http.wire.loop_fairness import gently, uncollected
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import HttpError, log

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


#: The kind of snapshot that peers are asked for.
KIND = "metrics"
#: Time limit for a peer in seconds. A missing peer makes counters go down, so it is generous: a
#: snapshot of thousands of models takes some tenths of a second.
PATIENCE = 2.0


class Metrics:
    """All metrics of a service."""

    def __init__(self, service: HandlerContext) -> None:
        self._service, self.meters = service, Meters(service.router.template)
        self.accountant = Accountant()
        self.energy = Energy(service.settings.core_watts, service.settings.carbon_grams)
        service.observers.append(self.meters)
        service.peers.offer(KIND, lambda: to_json(self.snapshot()))

    def snapshot(self) -> Snapshot:
        """The figures of this process, those of drift still as counts; from any thread."""
        with uncollected():
            service, stats = self._service, self._service.runtime.stats()
            versions = service.runtime.endpoints.versions()
            self.meters.forget(versions.keys())
            waiting = Family(
                "pretzel_http_requests_waiting", "gauge", "Requests whose answers are awaited."
            )
            waiting.add(service.waiting)
            failed = Family(
                "pretzel_tls_handshake_failures_total", "counter", "TLS handshakes that failed."
            )
            for reason, count in dict(service.handshakes.counts).items():
                failed.add(count, reason=reason)
            return [
                *self.meters.families(),
                waiting,
                failed,
                *_lag(service),
                *metrics_runtime.families(service, stats, self.accountant(versions)),
                *metrics_process.families(),
                *self.energy.families(stats.versions),
            ]

    async def everywhere(self) -> Snapshot:
        """The figures of this process and of its peers together."""
        peers = self._service.peers
        ours, theirs, rollouts = await asyncio.gather(
            asyncio.to_thread(self.snapshot),
            peers.snapshot(KIND, PATIENCE),
            metrics_rollout.known(peers),
        )
        merged = await asyncio.to_thread(_merged, ours, theirs)
        return [*merged, *metrics_rollout.families(rollouts)]


def _lag(service: HandlerContext) -> list[Family]:
    """The lag of the event loop in the last ten seconds."""
    late = "How late the event loop was, at worst in 10 s."
    unread = "How long a request waited to be read, at worst in 10 s."
    families = [
        Family("pretzel_http_loop_lag_seconds", "gauge", late, over="max"),
        Family("pretzel_http_unread_seconds", "gauge", unread, over="max"),
    ]
    for family, seconds in zip(families, service.lag.worst(), strict=True):
        family.add(seconds)
    return families


def _merged(ours: Snapshot, theirs: dict[int, object]) -> Snapshot:
    return metrics_watch.with_drift(merge([ours, *_readable(theirs)]) if theirs else ours)


def _readable(theirs: dict[int, object]) -> list[Snapshot]:
    """The snapshots of peers; an invalid one is logged and left out."""
    snapshots = []
    for number, data in theirs.items():
        try:
            snapshots.append(from_json(data))
        except ValueError as problem:  # msgspec's are
            log.warning("the metrics of worker %d cannot be read: %s", number, problem)
    return snapshots


def metrics(service: HandlerContext, request: Request) -> Answer:
    """All figures as text."""
    if service.metrics is None:
        raise HttpError(
            "nothing is counted here", 404, where="/metrics", hint="the setting is metrics=true"
        )
    return _text(service, service.metrics)


async def _text(service: HandlerContext, metrics_of: SnapshotSource) -> Response:
    snapshot = await metrics_of.everywhere()
    body = await asyncio.to_thread(_body, snapshot, triton=service.settings.triton_metrics)
    return Response(body, content_type=CONTENT_TYPE)


def _body(snapshot: Snapshot, *, triton: bool) -> bytes:
    with uncollected():
        return exposition([*snapshot, *triton_aliases(snapshot)] if triton else snapshot)
