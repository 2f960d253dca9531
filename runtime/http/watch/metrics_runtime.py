"""Metrics of the runtime: models, engines, queues, memory, shared results, caches.

Bytes of parameters by version: own ones, and those shared with other versions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

from objectstore import MemoryStore
from objectstore.accounting import report
from runtime.http.codec.model_codec import CallCounts, ModelCodec
from runtime.http.routes import HandlerContext
from runtime.http.snapshots import Family
from runtime.http.watch import metrics_watch
from runtime.http.wire.loop_fairness import gently
from runtime.routing import ShadowStats
from runtime.service.groups import GroupStats
from runtime.service.memory import MemoryStats
from runtime.service.stats import RuntimeStats, VersionStats
from runtime.service.stream_counts import STREAMS, StreamCounts
from runtime.service.version import ModelVersion
from scheduler import Engine, Latency, PoolStats


@dataclass(frozen=True, slots=True)
class Parameters:
    """Bytes: own and shared ones by owner, all without duplicates, and all with duplicates."""

    by_owner: Mapping[str, tuple[int, int]]
    unique: int
    copies: int


class Accountant:
    """Adds up the parameters of plans in memory; those of a plan are looked up once."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[ModelVersion, dict[str, int]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __call__(self, versions: Mapping[str, ModelVersion]) -> Parameters:
        """The bytes of these versions, as far as their plans are in memory."""
        with self._lock:
            by_version = {
                owner: self._sizes_of(served) for owner, served in gently(versions.items())
            }
        held = {owner: each for owner, each in by_version.items() if each is not None}
        sizes = {digest: nbytes for each in held.values() for digest, nbytes in each.items()}
        holdings = {owner: frozenset(each) for owner, each in held.items()}
        totals = report(holdings, (), sizes.__getitem__)
        by_owner = {each.owner: (each.own_bytes, each.shared_bytes) for each in totals.owners}
        return Parameters(by_owner, totals.unique_bytes, totals.held_bytes)

    def _sizes_of(self, served: ModelVersion) -> dict[str, int] | None:
        """Bytes by digest; None while the plan is dropped."""
        plan = served.plan
        if plan is None:
            return None
        sizes = self._known.get(served)
        if sizes is None:
            sizes = {item.digest: item.nbytes for item in plan.program.resident()}
            self._known[served] = sizes
        return sizes


_counter = partial(Family, kind="counter")
_gauge = partial(Family, kind="gauge")
_flag = partial(Family, kind="gauge", over="max")

_TIER = "1 if native code answers, 0 if definitions do while it is compiled."
_LEFT = "About how long it will take until all code is there that usual calls need."
_INLINE, _BATCH = ("engine", Engine.INLINE.value), ("engine", Engine.BATCH.value)
_OWN, _SHARED = ("kind", "own"), ("kind", "shared")


def families(service: HandlerContext, stats: RuntimeStats, parameters: Parameters) -> list[Family]:
    """All metric families of the runtime."""
    return [
        *_versions(service, stats.versions),
        *_parameters(service, parameters),
        *_catalog(stats),
        *_residency(stats.memory),
        *_inline(stats),
        *(_pool(stats.batch) if stats.batch is not None else ()),
        *_groups(stats.groups),
        *metrics_watch.families(service.runtime.endpoints.versions().values()),
        *_answering(service.answering),
        *_streams([*STREAMS.get(service.runtime, {}).values()]),
        _shadows(service.runtime.routes.shadow_stats()),
        *_graph_steps(service),
    ]


# --- models ------------------------------------------------------------------------------------


def _versions(service: HandlerContext, versions: Iterable[VersionStats]) -> list[Family]:
    calls = _counter("pretzel_calls_total", help="Calls that were answered.")
    failed = _counter("pretzel_call_failures_total", help="Calls that failed or were refused.")
    rows = _counter("pretzel_rows_total", help="Rows that were answered.")
    seconds = _counter("pretzel_call_seconds_total", help="Time of answered calls together.")
    engines = _counter("pretzel_engine_calls_total", help="Calls by the engine that ran them.")
    chosen = _flag("pretzel_engine_choice", help="1 for the engine that was chosen last.")
    row = _flag("pretzel_row_seconds", help="What a call of one row is expected to take.")
    serving = _flag("pretzel_version_in_service", help="1 if it answers under the bare name.")
    resident = _gauge("pretzel_plan_resident", help="Processes that have the plan in memory.")
    tier = Family("pretzel_version_tier", "gauge", _TIER, over="min")
    left = _flag("pretzel_version_compile_seconds_left", help=_LEFT)
    reserved = _gauge("pretzel_reserved_executors", help="Executors of the version's own.")
    every = service.runtime.endpoints.versions()
    for each in gently(versions):
        labels = (("model", each.name), ("version", each.version))
        served = every.get(f"{each.name}@{each.version}")
        counts = (
            served.front.counts if served and isinstance(served.front, ModelCodec) else CallCounts()
        )
        calls.put(counts.calls, labels)
        failed.put(counts.failed, labels)
        rows.put(counts.rows, labels)
        seconds.put(counts.seconds, labels)
        engines.put(each.inline_calls, (*labels, _INLINE))
        engines.put(each.batch_calls, (*labels, _BATCH))
        if each.engine is not None:
            chosen.put(1, (*labels, ("engine", each.engine)))
        if each.row_seconds is not None:
            row.put(each.row_seconds, labels)
        serving.put(int(each.in_service), labels)
        resident.put(int(each.resident), labels)
        reserved.put(each.reserved, labels)
        if each.tier is not None:
            tier.put(each.tier, labels)
        left.put(each.seconds_left, labels)
    known = [calls, failed, rows, seconds, engines, chosen, row, serving, resident, reserved]
    return [*known, tier, left]


def _parameters(service: HandlerContext, parameters: Parameters) -> list[Family]:
    # A file store is mapped by all processes, so its parameters exist once on the machine.
    mapped = not isinstance(service.runtime.store, MemoryStore)
    over: Literal["max", "sum"] = "max" if mapped else "sum"
    bytes_held = _gauge(
        "pretzel_parameter_bytes",
        help="Parameters of a version: its own, and those it has in common with others.",
        over=over,
    )
    for owner, (own, shared) in gently(parameters.by_owner.items()):
        name, _, version = owner.rpartition("@")
        labels = (("model", name), ("version", version))
        bytes_held.put(own, (*labels, _OWN))
        bytes_held.put(shared, (*labels, _SHARED))
    unique = _gauge("pretzel_unique_parameter_bytes", help="All parameters, each once.", over=over)
    unique.add(parameters.unique)
    copies = _gauge(
        "pretzel_unshared_parameter_bytes",
        help="What parameters would take if every version had its own.",
        over=over,
    )
    copies.add(parameters.copies)
    return [bytes_held, unique, copies]


def _catalog(stats: RuntimeStats) -> list[Family]:
    catalog = stats.catalog
    return [
        _single(
            _flag, "versions", "Versions that are registered or still answer.", catalog.versions
        ),
        _single(_flag, "stages", "Different native stages.", catalog.stages),
        _single(
            _flag, "stage_uses", "Native stages, if each version had its own.", catalog.stage_uses
        ),
    ]


def _single(make: Callable[..., Family], name: str, text: str, value: float) -> Family:
    family = make(f"pretzel_{name}", help=text)
    family.add(value)
    return family


def _shadows(every: Iterable[ShadowStats]) -> Family:
    """Requests that shadows were asked, and those they were spared."""
    requests = _counter("pretzel_shadow_requests_total", help="Requests for shadows, by their end.")
    for each in every:
        name, _, version = each.challenger.rpartition("@")
        labels = (("model", name), ("version", version))
        for state, count in (
            ("answered", each.asked - each.failed),
            ("failed", each.failed),
            ("shed", each.shed),
        ):
            requests.put(count, (*labels, ("state", state)))
    return requests


def _graph_steps(service: HandlerContext) -> list[Family]:
    """Rows of each step: of a cascade, those that its second model, or a fetch, answered."""
    rows = _counter("pretzel_graph_step_rows_total", help="Rows of a graph's step, or fetched.")
    spared = _counter("pretzel_graph_fetch_spared_rows_total", help="Rows that needed no fetch.")
    for owner, served in gently(service.runtime.endpoints.versions().items()):
        graph = getattr(served.plan, "graph", None)  # a graph of a single step has none
        name, _, version = owner.rpartition("@")
        for step in () if graph is None else graph.steps:
            if step.kind != "choice":
                labels = (("model", name), ("version", version), ("step", str(step.number)))
                rows.put(step.rows, (*labels, ("title", step.title)))
                if step.kind == "fetch":
                    spared.put(step.spared, (*labels, ("title", step.title)))
    return [rows, spared]


def _streams(streams: Iterable[StreamCounts]) -> list[Family]:
    """The streams that this process answers."""
    messages = _counter("pretzel_stream_messages_total", help="Messages that were acknowledged.")
    rows = _counter("pretzel_stream_rows_total", help="Rows of messages that were answered.")
    refused = _counter("pretzel_stream_refused_total", help="Messages that were dead letters.")
    retries = _counter("pretzel_stream_retries_total", help="Batches that waited for room.")
    lost = _counter("pretzel_stream_reconnects_total", help="Times that a broker was lost.")
    lag = _flag("pretzel_stream_lag", help="Messages that wait in the source.")
    families = [messages, rows, refused, retries, lost, lag]
    for each in streams:
        labels = (("model", each.endpoint), ("source", each.source))
        figures = each.messages, each.rows, each.refused, each.retries, each.reconnects, each.lag
        for family, figure in zip(families, figures, strict=True):
            if figure is not None:
                family.put(figure, labels)
    return families


# --- memory ------------------------------------------------------------------------------------


def _residency(memory: MemoryStats) -> list[Family]:
    cold = memory.cold
    families = [
        _single(_gauge, "resident_plans", "Plans in memory.", memory.resident),
        _single(_gauge, "dropped_plans", "Registered plans not in memory.", memory.dropped),
        _single(_counter, "evictions_total", "Plans that were dropped.", memory.evictions),
        _single(_counter, "cold_hits_total", "Calls that brought a plan back.", memory.cold_hits),
        _single(_counter, "cold_hit_seconds_total", "Their loading time.", cold.mean * cold.count),
        _single(
            _counter, "unwritable_plans_total", "Plans that could not be spilt.", memory.unwritable
        ),
    ]
    if memory.budget is not None:
        families.append(_single(_gauge, "memory_budget_bytes", "Budget of plans.", memory.budget))
        families.append(_single(_gauge, "memory_budget_used_bytes", "In use of it.", memory.used))
    return families


# --- engines -----------------------------------------------------------------------------------


def _inline(stats: RuntimeStats) -> list[Family]:
    inline = stats.inline
    return [
        _single(_counter, "inline_failures_total", "Calls that failed inline.", inline.failed),
        _single(_counter, "inline_refusals_total", "Calls refused by the limit.", inline.refused),
        _single(_gauge, "result_bytes", "Kept results of common first parts.", stats.result_bytes),
        _single(_gauge, "thread_bytes", "Scratch memory that threads keep.", stats.thread_bytes),
    ]


def _pool(pool: PoolStats) -> list[Family]:
    jobs = _counter("pretzel_jobs_total", help="Jobs of the executors, by how they ended.")
    for name in ("done", "failed", "expired", "cancelled", "refused"):
        jobs.add(getattr(pool, name), state=name)
    queued = _gauge("pretzel_queued_jobs", help="Jobs that wait for an executor.")
    rows = _gauge("pretzel_queued_rows", help="Rows that wait for an executor.")
    seconds = _gauge("pretzel_queued_seconds", help="The work that waits, as it was estimated.")
    executors = _gauge("pretzel_executors", help="Executors.")
    idle = _gauge("pretzel_idle_executors", help="Executors that have nothing to do.")
    for queues in pool.queues:
        labels = {"lane": "shared" if queues.key is None else str(queues.key)}
        queued.add(queues.queued_jobs, **labels)
        rows.add(queues.queued_rows, **labels)
        seconds.add(queues.queued_seconds, **labels)
        executors.add(queues.executors, **labels)
        idle.add(queues.idle, **labels)
    return [
        jobs,
        *(queued, rows, seconds, executors, idle),
        _single(_counter, "executor_seconds_total", "Executors' working time.", pool.busy_seconds),
        _single(_counter, "job_wait_seconds_total", "Jobs' time before start.", _sum(pool.wait)),
        _single(_counter, "job_seconds_total", "Jobs' time until their end.", _sum(pool.total)),
        _single(
            _counter, "executor_deaths_total", "Executors that had to be replaced.", pool.deaths
        ),
        _single(_gauge, "buffer_bytes", "Buffers that lie ready.", pool.buffers.idle_bytes),
    ]


def _sum(latency: Latency) -> float:
    return latency.mean * latency.count


# --- shared results and caches -------------------------------------------------------------------


def _groups(groups: Iterable[GroupStats]) -> list[Family]:
    lookups = _counter("pretzel_shared_part_lookups_total", help="Look-ups of common first parts.")
    mode = _gauge("pretzel_shared_part_mode", help="Groups of versions, by what is done for them.")
    modes: dict[str, int] = {}
    for each in groups:
        first = each.members[0] if each.members else ""
        lookups.add(each.hits, first=first, result="hit")
        lookups.add(each.misses, first=first, result="miss")
        modes[each.mode] = modes.get(each.mode, 0) + 1
    for name, count in sorted(modes.items()):
        mode.add(count, mode=name)
    return [lookups, mode]


def chain(answering: object) -> Iterator[Any]:
    """The layers between a decoded request and the engines, outermost first."""
    layer: Any = answering
    while layer is not None:
        yield layer
        layer = getattr(layer, "inner", None)


def _answering(answering: object) -> list[Family]:
    layers = (layer for layer in chain(answering) if hasattr(layer, "families"))
    return [family for layer in layers for family in layer.families()]
