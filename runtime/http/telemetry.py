"""What looks on while requests are answered, as the settings have it: counters, log, traces.

What is off is not there at all, so it costs nothing.
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
    """Put the observers that the settings ask for into a service."""
    settings = service.settings
    if settings.metrics:
        service.metrics = Metrics(service)
    if settings.access_log:
        share = settings.access_log_share
        service.observers.append(AccessLog(settings.access_log, share, client=_who(service)))
    if settings.tracing:
        _trace(service)


def _who(service: HandlerContext) -> Callable[[Request], Client | None]:
    """Says who asks, where a guard knows; guards come after observers, so it is looked up late."""

    def client(request: Request) -> Client | None:
        known = next((each for each in service.guards if isinstance(each, Tokens)), None)
        return None if known is None else known.client(request)

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
    """Others were looked at since this request was: what looks on must know whose turn it is."""
    again = getattr(service.answering, "resume", None)
    if again is not None:
        again(request)


def finish(service: HandlerContext) -> None:
    """The service has ended: let those who look on write what they hold."""
    for each in (*service.observers, service.answering):
        end = getattr(each, "close", None)
        if end is not None:
            end()
