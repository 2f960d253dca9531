"""`/metrics`: counters of this process and its peers, in Prometheus' format.

The event loop counts requests as they are answered. All other figures are counted where they arise,
and read for each scrape, on a thread beside the event loop. Several processes on one port ask each
other: a scrape that reaches any of them reads the sums of all.
"""

from __future__ import annotations

import asyncio

from runtime.http.routes import HandlerContext
from runtime.http.snapshots import (
    Family,
    Snapshot,
    SnapshotSource,
    from_json,
    merge,
    to_json,
)
from runtime.http.watch import (
    metrics_process,
    metrics_rollout,
    metrics_runtime,
    metrics_triton,
    metrics_watch,
)
from runtime.http.watch.metrics_energy import Energy
from runtime.http.watch.metrics_meters import Meters
from runtime.http.watch.metrics_text import CONTENT_TYPE, exposition
from runtime.http.watch.parameters import Accountant
from runtime.http.wire.loop_fairness import uncollected
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import HttpError, log

#: The kind of snapshot that peers are asked for.
KIND = "metrics"
#: Time limit for a peer in seconds. A missing peer makes counters go down, so it is generous: a
#: snapshot of thousands of models takes some tenths of a second.
PATIENCE = 2.0


class Metrics:
    """All metrics of a service."""

    def __init__(self, service: HandlerContext) -> None:
        self._service = service
        self.meters = Meters(service.router.template)
        self.accountant = Accountant()
        self.energy = Energy(service.settings.core_watts, service.settings.carbon_grams)
        service.observers.append(self.meters)
        service.peers.offer(KIND, lambda: to_json(self.snapshot()))

    def snapshot(self) -> Snapshot:
        """The figures of this process, those of drift still as counts; from any thread."""
        with uncollected():
            return self._snapshot()

    def _snapshot(self) -> Snapshot:
        service, stats = self._service, self._service.runtime.stats()
        versions = service.runtime.endpoints.versions()
        self.meters.forget(versions.keys())
        waiting = Family(
            "pretzel_http_requests_waiting", "gauge", "Requests whose answers are awaited."
        )
        waiting.add(service.waiting)
        return [
            *self.meters.families(),
            waiting,
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
    """How far the event loop was behind in the last ten seconds."""
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
        return exposition([*snapshot, *metrics_triton.aliases(snapshot)] if triton else snapshot)
