"""Attaches observers of requests by the settings: metrics, access log, traces.

Observers that are off are not attached, so they cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from flour.core.errors import ParameterError
from runtime.http.access_log import AccessLog
from runtime.http.guards import Client, Tokens
from runtime.http.messages import Request
from runtime.http.metrics import Metrics
from runtime.http.problems import log
from runtime.http.routes import HandlerContext


def attach(service: HandlerContext) -> None:
    """Attach the observers that the settings enable."""
    settings = service.settings
    if settings.metrics:
        service.metrics = Metrics(service)
    if settings.access_log:
        share = settings.access_log_share
        service.observers.append(AccessLog(settings.access_log, share, client=_who(service)))
    if settings.tracing:
        _trace(service)


def _who(service: HandlerContext) -> Callable[[Request], Client | None]:
    """A function from a request to its sender; guards are added later, so it looks them up late."""

    def client(request: Request) -> Client | None:
        tokens = next((each for each in service.guards if isinstance(each, Tokens)), None)
        return None if tokens is None else tokens.client(request)

    return client


def _trace(service: HandlerContext) -> None:
    try:
        from opentelemetry import trace

        from runtime.http.tracing import TracedAnswering, Tracing
    except ModuleNotFoundError as problem:
        raise ParameterError(
            "tracing needs a distribution more",
            where="ServerSettings.tracing",
            found=f"no {problem.name}",
            hint="pip install 'pretzel-runtime[trace]'",
        ) from problem
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        log.warning("nothing is traced: no provider of OpenTelemetry was set before the server")
        return
    tracing = Tracing(service.router, service.settings.trace_stages)
    service.guards.insert(0, tracing.guard)
    service.observers.append(tracing.observer)
    service.answering = TracedAnswering(service.answering, tracing)


def resume(service: HandlerContext, request: Request) -> None:
    """Make this request the current one again, as others were handled in between."""
    again = getattr(service.answering, "resume", None)
    if again is not None:
        again(request)


def finish(service: HandlerContext) -> None:
    """Let observers write their remaining data at the end of the service."""
    for each in (*service.observers, service.answering):
        end = getattr(each, "close", None)
        if end is not None:
            end()
