"""The status page at `/`, and the explain page of any plan.

Figures are those of `/metrics`, so of all workers together; plans are those of the worker that
answers. No script: filtering is a form, and the browser refreshes.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from html import escape
from urllib.parse import parse_qs, quote

from flour.core.hidden import hiding
from oven.explain.page import document
from runtime.graph.explained import explained
from runtime.http.guard.clients import may_change
from runtime.http.pages import page_html as html
from runtime.http.pages.page_graphs import graph, graphs
from runtime.http.pages.page_html import Row, TableCell, duration, number, size
from runtime.http.pages.page_routes import routes
from runtime.http.routes import HandlerContext
from runtime.http.snapshots import Distribution, Snapshot
from runtime.http.watch.metrics_rollout import known
from runtime.http.wire.interfaces import ModelState
from runtime.http.wire.loop_fairness import gently, uncollected
from runtime.http.wire.messages import Answer, Request, Response
from runtime.http.wire.problems import HttpError
from runtime.http.wire.settings import server_version
from runtime.service.stats import VersionStats, tier_text
from runtime.service.version import ModelVersion

HTML = "text/html; charset=utf-8"
#: Most models that are listed; a search finds the others.
SHOWN = 500
LONGEST_REFRESH = 3600
#: Steps of `explain` that are shown: those that take milliseconds and show no machine code.
STEPS = ("stages", "logical", "optimised", "source")
_TIMES = "Times are from the last byte of a request to its answer, by the buckets of /metrics."
_TIERS = "Tier 1 is answered by native code, tier 0 by the operators' definitions, which is slower."
_HEADERS = (
    # No external resources, no scripts.
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
)


def status(service: HandlerContext, request: Request) -> Answer:
    """The status page."""
    check_on(service)
    query = parse_qs(request.query)
    refresh = query.get("refresh", ["0"])[0]
    again = int(refresh) if refresh.isascii() and refresh.isdigit() and len(refresh) < 6 else 0
    changes = may_change(service, request)
    return _status(service, query.get("q", [""])[0], min(again, LONGEST_REFRESH), changes=changes)


def explain(service: HandlerContext, request: Request) -> Answer:
    """One plan, at the step that the query names: `?step=stages` and so on."""
    check_on(service)
    version = service.front(request.params["model"], request.params.get("version")).version
    step = parse_qs(request.query).get("step", ["stages"])[0]
    if step not in STEPS:
        raise HttpError(
            "this step is not shown here", 400, where="step", found=step[:50], hint=", ".join(STEPS)
        )
    return _explained(service, version, step)


def check_on(service: HandlerContext) -> None:
    """Refuse a page where the settings want none."""
    if not service.settings.status_page:
        raise HttpError("there is no status page", 404, hint="the setting is status_page=true")


# --- a plan --------------------------------------------------------------------------------------


async def _explained(service: HandlerContext, version: ModelVersion, step: str) -> Response:
    plan = version.plan
    if plan is None:
        raise HttpError(
            "the plan was dropped for memory",
            409,
            where=version.owner,
            hint="a call brings it back",
        )
    with hiding(version.private):  # the thread has this context
        text = await asyncio.to_thread(explained, plan, step, "html")
    pages = [
        ("all models", "/"),
        *((name, _plan(version.name, version.version, name)) for name in STEPS),
    ]
    facts = service.runtime.graphs.facts(version.owner)
    drawn = "" if facts is None else graph(version.owner, facts, opened=True)
    nav = f"</h1>{html.links(pages)}</header>\n<p><b>{escape(version.owner)}</b></p>\n{drawn}"
    body = text.replace("</h1></header>\n", nav, 1).encode("utf-8", "replace")
    return Response(body, content_type=HTML, headers=_HEADERS)


def _links(name: str, version: str) -> tuple[tuple[str, str], ...]:
    trying = f"/try/{quote(name, safe='')}/versions/{quote(version, safe='')}"
    return ("try", trying), ("plan", _plan(name, version, STEPS[0]))


def _plan(name: str, version: str, step: str) -> str:
    return f"/explain/{quote(name, safe='')}/versions/{quote(version, safe='')}?step={step}"


# --- everything ----------------------------------------------------------------------------------


async def _status(service: HandlerContext, wanted: str, refresh: int, *, changes: bool) -> Response:
    snapshot = await service.metrics.everywhere() if service.metrics is not None else []
    rollouts = {each["endpoint"]: each for each in await known(service.peers)}
    drawn = partial(routes, service.runtime, rollouts, wanted, changes=changes)
    body = await asyncio.to_thread(_page, service, snapshot, wanted, refresh, drawn)
    return Response(body, content_type=HTML, headers=_HEADERS)


class Figures:
    """A snapshot, by name and version."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._families = {family.name: dict(family.samples) for family in snapshot}

    def one(self, name: str, **labels: str) -> float | None:
        """The sample with exactly these labels."""
        value = self._families.get(f"pretzel_{name}", {}).get(tuple(labels.items()))
        return None if isinstance(value, Distribution) else value

    def total(self, name: str) -> float:
        """All samples of a name together."""
        values = self._families.get(f"pretzel_{name}", {}).values()
        return sum(each for each in values if not isinstance(each, Distribution))

    def samples(self, name: str) -> Iterator[tuple[dict[str, str], float]]:
        """The labels and values of a name."""
        for labels, value in self._families.get(f"pretzel_{name}", {}).items():
            if not isinstance(value, Distribution):
                yield dict(labels), value

    def most(self, name: str) -> float:
        """The largest sample of a name."""
        values = self._families.get(f"pretzel_{name}", {}).values()
        return max((each for each in values if not isinstance(each, Distribution)), default=0.0)

    def durations(self) -> dict[tuple[str, str], Distribution]:
        """By model and version, over all routes."""
        merged: dict[tuple[str, str], Distribution] = {}
        samples = self._families.get("pretzel_http_request_duration_seconds", {})
        for labels, value in gently(samples.items()):
            names = dict(labels)
            owner = names["model"], names["version"]
            if isinstance(value, Distribution):
                merged[owner] = merged[owner].plus(value) if owner in merged else value
        return merged


@uncollected()
def _page(
    service: HandlerContext, snapshot: Snapshot, wanted: str, refresh: int, drawn: Callable[[], str]
) -> bytes:
    figures = Figures(snapshot)
    here = f"?q={quote(wanted)}&refresh=" if wanted else "?refresh="
    again = ("stop refreshing", f"{here}0") if refresh else ("refresh every 5 s", f"{here}5")
    nav = html.links([again, ("metrics", "/metrics"), ("routes", "/docs")])
    parts = [
        html.facts(_facts(service, figures)),
        _models(service, figures, wanted),
        _watched(figures, wanted),
        _streams(figures, wanted),
        graphs(service.runtime, wanted),
        drawn(),
        _repository(service),
        _engines(service),
        html.footer(f"Pretzel {server_version()}. {_TIMES} {_TIERS}"),
    ]
    made = document("Pretzel", "".join(parts), nav=nav, refresh=refresh)
    return made.encode("utf-8", "replace")


def _facts(service: HandlerContext, figures: Figures) -> Iterator[tuple[str, str, str]]:
    ready = service.ready().ready
    yield "state", "ready" if ready else "not ready", "good" if ready else "bad"
    if left := figures.most("version_compile_seconds_left"):
        yield "compiling for", duration(left), "wait"
    began = figures.one("process_start_time_seconds")
    yield "up for", duration(None if began is None else time.time() - began), ""
    yield "processes", number(figures.one("workers")), ""
    yield "requests", number(figures.total("http_requests_total")), ""
    yield "waiting", number(figures.one("http_requests_waiting")), ""
    if alarms := figures.total("drift_alarms") + figures.total("watch_alarms_total"):
        yield "alarms", number(alarms), "bad"
    yield "memory", size(figures.one("process_resident_bytes")), ""
    yield "parameters", size(figures.one("unique_parameter_bytes")), ""
    yield "parameters as copies", size(figures.one("unshared_parameter_bytes")), ""
    yield "stages", number(figures.one("stages")), ""
    yield "stages as copies", number(figures.one("stage_uses")), ""
    yield "plans in memory", number(figures.one("resident_plans")), ""
    yield "dropped", number(figures.one("dropped_plans")), ""


_COLUMNS = {"model": "name", "version": "", "pages": "short", "state": "short"}
_COLUMNS |= {"tier": "", "engine": "name"}
_COLUMNS |= dict.fromkeys(("calls", "failed", "rows", "p50", "p90", "p99"), "number")
_COLUMNS |= dict.fromkeys(("computing", "own", "shared"), "number")


def _models(service: HandlerContext, figures: Figures, wanted: str) -> str:
    every = service.runtime.stats().versions
    matching = [each for each in every if wanted in each.name]
    durations = figures.durations()
    rows = [_model(each, figures, durations) for each in gently(matching[:SHOWN], 8)]
    note = ""
    if len(matching) > SHOWN:
        note = f"the first {SHOWN:,} of {len(matching):,}; search for the others"
    elif not matching:
        note = "none" if not wanted else f"none of {len(every):,} has this in its name"
    form = html.search(wanted) if wanted or len(every) > 10 else ""
    return html.section("Models", form + (html.table(_COLUMNS, rows) if rows else ""), note)


def _model(
    each: VersionStats, figures: Figures, durations: dict[tuple[str, str], Distribution]
) -> Row:
    labels = {"model": each.name, "version": each.version}
    times = durations.get((each.name, each.version), Distribution())
    state = TableCell("in service", "good") if each.in_service else TableCell("by version", "dim")
    if not each.resident:
        state = TableCell("dropped for memory", "wait")
    tier = TableCell(tier_text(each), "" if each.ready else "wait")
    engine = each.engine or ("inline" if each.inline_calls else "")
    counts = ("calls_total", "call_failures_total", "rows_total")
    return (
        *(each.name, each.version, TableCell("", "", _links(each.name, each.version)), state, tier),
        f"{engine}: {each.reason}" if each.reason else engine,
        *(number(figures.one(name, **labels)) for name in counts),
        *(duration(times.quantile(share)) for share in (0.5, 0.9, 0.99)),
        duration(figures.one("compute_seconds_total", **labels)),
        *(size(figures.one("parameter_bytes", **labels, kind=of)) for of in ("own", "shared")),
    )


_WATCHED = {"model": "name", "version": "", "column or detector": "name", "state": ""}
_WATCHED |= dict.fromkeys(("PSI", "±", "missing", "unseen", "rows"), "number")
_MEANING = (
    "Columns against the reference; an alarm takes 500 rows, and a PSI above 0.2 and two of its "
    "errors, or values that the reference does not have."
)


def _streams(figures: Figures, wanted: str) -> str:
    """A table of streams that the server answers; empty where there is none."""
    names = "messages_total", "refused_total", "retries_total", "reconnects_total", "lag"
    rows = [
        (
            *(labels["model"], labels["source"]),
            *(number(figures.one(f"stream_{name}", **labels)) for name in names),
        )
        for labels, _ in figures.samples("stream_messages_total")
        if wanted in labels["model"]
    ]
    heads = {"model": "name", "source": "name"}
    heads |= {name.removesuffix("_total"): "number" for name in names}
    return html.section("Streams", html.table(heads, rows)) if rows else ""


def _watched(figures: Figures, wanted: str) -> str:
    """A table of alarms and columns; those that alarm, or have moved most, come first."""
    found = []
    for labels, alarms in figures.samples("drift_alarms"):
        told = [figures.one(f"drift_{name}", **labels) for name in _FIGURES]
        state = TableCell("alarm", "bad") if alarms else TableCell("as the reference", "good")
        if told[0] is None:
            state = TableCell("too few rows", "wait")
        shown = ("–" if each is None else f"{each:.3g}" for each in told[:-1])
        cells: Row = *_who(labels, "column"), state, *shown, number(told[-1])
        found.append((-alarms, -(told[0] or 0.0), cells))
    for labels, alarms in figures.samples("watch_alarms_total"):
        if alarms:
            cells = (*_who(labels, ""), TableCell(f"{alarms:,.0f} alarms on scores", "bad"))
            found.append((-1.0, -math.inf, (*cells, *([""] * len(_FIGURES)))))
    for labels, rows in figures.samples("watch_dropped_rows_total"):
        if rows:
            cells = (*_who(labels, ""), TableCell("rows not looked at", "wait"))
            found.append((0.0, -math.inf, (*cells, "", "", "", "", number(rows))))
    rows_of = [
        each for *_, each in sorted(found, key=lambda one: one[:2]) if wanted in str(each[0])
    ]
    if not rows_of:
        return ""
    return html.section("Watched", html.table(_WATCHED, rows_of[:SHOWN]), _MEANING)


_FIGURES = ("psi", "psi_error", "missing", "unseen", "rows")


def _who(labels: dict[str, str], part: str) -> tuple[str, ...]:
    return labels["model"], labels["version"], labels.get(part, "scores")


_LOOKS = {"READY": "good", "UNAVAILABLE": "bad"}


def _repository(service: HandlerContext) -> str:
    """The repository: its models, and why some of them are not served."""
    if service.repository is None:
        return ""
    states = service.repository.index()
    # Models that are not ready come first.
    shown = sorted(states, key=lambda each: each.state == "READY")[:SHOWN]
    columns = {"model": "name", "version": "", "state": "", "reason": ""}
    note = (
        f"{len(states):,} versions"
        if len(shown) == len(states)
        else f"{SHOWN:,} of {len(states):,}"
    )
    return html.section("Repository", html.table(columns, map(_state, shown)), note)


def _state(each: ModelState) -> Row:
    look = _LOOKS.get(each.state, "wait")
    away = each.state != "READY" and not each.wanted
    state = f"{each.state} (on purpose)" if away else each.state
    shown = TableCell(state, "dim" if away else look)
    return each.name or "the folder", each.version, shown, each.reason


def _engines(service: HandlerContext) -> str:
    """Executors with their queues, and shared first stages, if there are any."""
    stats = service.runtime.stats()
    sections = ""
    if stats.batch is not None:
        names = ("executors", "idle", "queued calls", "queued rows", "queued work")
        columns = {"lane": "name", **dict.fromkeys(names, "number")}
        rows = [
            (
                "shared" if queues.key is None else str(queues.key),
                *map(number, (queues.executors, queues.idle)),
                *map(number, (queues.queued_jobs, queues.queued_rows)),
                duration(queues.queued_seconds),
            )
            for queues in stats.batch.queues
        ]
        sections += html.section("Executors of this process", html.table(columns, rows))
    if stats.groups:
        columns = {"versions": "name", "mode": "", "hit rate": "number"}
        groups = [
            (
                ", ".join(each.members[:8]) + ", …" * (len(each.members) > 8),
                each.mode,
                f"{each.hit_rate:.0%}",
            )
            for each in stats.groups
        ]
        sections += html.section("Common first parts", html.table(columns, groups))
    return sections
