"""Requests as spans of OpenTelemetry: the request, in it the plan, in that its stages.

The provider that the process has set decides what is recorded, and where it goes; a client's
`traceparent` makes the request part of the client's trace. Requests that are not recorded cost a
look at that. The plan's span covers the way from a decoded call to its answers, with queues and
whatever else lies between. Of some recorded requests (`trace_stages`) the plan runs stage by stage
on a thread of its own, past caches and queues, so that each stage's span is what that stage took.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from flour.data.batch import Batch
from oven import Plan
from oven.explain import timing
from oven.explain.steps import label
from runtime.http.routes import Router
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.settings import server_version
from runtime.service.answerers import NOBODY, Answerer, Asked, InferCall
from runtime.service.engines import shaped
from runtime.service.entry import Outputs
from runtime.service.version import ModelVersion

Answers = dict[str, Any]
_PARENT = ("traceparent", "tracestate")


class Traced:
    """The data of a recorded request. Times are of `time.perf_counter`."""

    __slots__ = ("began", "by_stage", "ended", "owner", "rows", "span", "stages")

    def __init__(self, span: Span, *, by_stage: bool) -> None:
        self.span, self.by_stage = span, by_stage
        self.owner = ""
        self.began = self.ended = 0.0
        self.rows = 0
        self.stages: Sequence[timing.StageSpan] = ()


class Tracing:
    """Begins the span of a request as its guard, and ends it as its observer."""

    def __init__(self, router: Router, stages: float = 0.0) -> None:
        """Trace requests; a share `stages` of recorded ones is computed stage by stage."""
        self._tracer = trace.get_tracer("pretzel.http", server_version())
        self._parents = TraceContextTextMapPropagator()
        self._router, self._stages, self._due = router, stages, 0.0
        #: The current request, if it is recorded.
        self.current: Traced | None = None

    def guard(self, request: Request) -> Response | None:
        """Start the span of a request."""
        carried = {name: request.header(name) for name in _PARENT}
        parent = self._parents.extract({name: text for name, text in carried.items() if text})
        span = self._tracer.start_span(
            request.method, parent, SpanKind.SERVER, start_time=_wall(request.started)
        )
        self.current = None
        if span.is_recording():
            self._due += self._stages
            by_stage = self._due >= 1.0
            self._due -= by_stage
            self.current = request.trace = Traced(span, by_stage=by_stage)
        return None

    def observer(self, request: Request, response: Response, seconds: float) -> None:
        """Add attributes, and end the span."""
        traced = request.trace
        if traced is None:
            return
        span: Span = traced.span
        route = self._router.template(request.method, request.path)
        if route is not None:
            span.update_name(f"{request.method} {route}")
            span.set_attribute("http.route", route)
        # Attributes by OpenTelemetry's naming conventions.
        attributes: dict[str, str | int] = {
            "http.request.method": request.method,
            "url.path": request.path,
            "http.response.status_code": response.status,
            "client.address": request.peer,
        }
        if request.front is not None:
            attributes["pretzel.model"] = request.front.version.name
            attributes["pretzel.version"] = request.front.version.version
        span.set_attributes(attributes)
        if response.status >= 500:
            span.set_status(StatusCode.ERROR)
        if traced.ended:
            inside = trace.set_span_in_context(traced.span)
            plan = self._tracer.start_span(
                f"plan {traced.owner}",
                inside,
                attributes={"pretzel.rows": traced.rows} if traced.rows else None,
                start_time=_wall(traced.began),
            )
            within = trace.set_span_in_context(plan)
            for number, each in enumerate(traced.stages):
                name = f"stage {label(number, each.stage)}"
                stage = self._tracer.start_span(name, within, start_time=_wall(each.began))
                operators = [item.op.name for item in each.stage.nodes]
                stage.set_attribute("pretzel.operators", operators)
                stage.end(_wall(each.ended))
            plan.end(_wall(traced.ended))
        span.end(_wall(request.started + seconds))


def _wall(moment: float) -> int:
    """A moment of `time.perf_counter` in nanoseconds since 1970."""
    return time.time_ns() - int((time.perf_counter() - moment) * 1e9)


class TracedAnswering:
    """Answerer that records its start and end."""

    def __init__(self, inner: Answerer, tracing: Tracing) -> None:
        self.inner, self._tracing = inner, tracing
        self._threads = ThreadPoolExecutor(1, "pretzel-traced")

    def quick(self, version: ModelVersion, batch: Batch, _asked: Asked = NOBODY) -> Outputs | None:
        """The outputs of a row or a few rows, if they can be had at once."""
        traced = self._tracing.current
        if traced is None:
            return self.inner.quick(version, batch)
        if traced.by_stage:
            return None
        began = time.perf_counter()
        answers = self.inner.quick(version, batch)
        if answers is not None:
            traced.owner, traced.began, traced.ended = version.owner, began, time.perf_counter()
        return answers

    def answer(self, ask: InferCall) -> Future[Answers]:
        """A future of the answers."""
        traced = self._tracing.current
        if traced is None:
            return self.inner.answer(ask)
        traced.owner, traced.began = ask.version.owner, time.perf_counter()
        plan = ask.version.plan
        if traced.by_stage and plan is not None and plan.ready:
            coming = self._threads.submit(_by_stages, plan, ask, traced)
        else:
            coming = self.inner.answer(ask)
        coming.add_done_callback(partial(_ended, traced))
        return coming

    def resume(self, request: Request) -> None:
        """Make this request the current one."""
        self._tracing.current = request.trace

    def close(self) -> None:
        """End the thread for requests that are computed stage by stage."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _ended(traced: Traced, _done: object) -> None:
    traced.ended = time.perf_counter()


def _by_stages(plan: Plan, ask: InferCall, traced: Traced) -> Answers:
    """The answers of a call, stage by stage."""
    ask.version.counts.batch.tick()
    answers, traced.rows, traced.stages = timing.staged(plan, ask.batch.block)
    return shaped(answers, ask.outputs, single=ask.batch.single)
