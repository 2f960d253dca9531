"""Attaches observers of requests by the settings: metrics, access log, traces.

Observers that are off are not attached, so they cost nothing.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType

from flour.core.errors import ParameterError
from runtime.http.access_log import STANDARD_ERROR, AccessLog, open_target
from runtime.http.clients import sender
from runtime.http.messages import Request
from runtime.http.metrics import Metrics
from runtime.http.problems import log
from runtime.http.routes import HandlerContext
from runtime.http.settings import ServerSettings


def check(settings: ServerSettings) -> None:
    """Raise if the access log cannot be written, or the package for tracing is missing."""
    if settings.access_log not in {"", STANDARD_ERROR}:
        open_target(str(settings.access_log)).close()
    if settings.tracing:
        _tracing()


def attach(service: HandlerContext) -> None:
    """Attach the observers that the settings enable."""
    settings = service.settings
    if settings.metrics:
        service.metrics = Metrics(service)
    if settings.access_log:
        target, share = str(settings.access_log), settings.access_log_share
        service.observers.append(AccessLog(target, share, client=partial(sender, service)))
    if settings.tracing:
        _trace(service)


def _tracing() -> ModuleType:
    try:
        from runtime.http import tracing
    except ModuleNotFoundError as problem:
        raise ParameterError(
            "tracing needs a distribution more",
            where="ServerSettings.tracing",
            found=f"no {problem.name}",
            hint="pip install 'pretzel-runtime[trace]'",
        ) from problem
    return tracing


def _trace(service: HandlerContext) -> None:
    tracing = _tracing()
    if isinstance(tracing.trace.get_tracer_provider(), tracing.trace.ProxyTracerProvider):
        log.warning("nothing is traced: no provider of OpenTelemetry was set before the server")
        return
    made = tracing.Tracing(service.router, service.settings.trace_stages)
    service.guards.insert(0, made.guard)
    service.observers.append(made.observer)
    service.answering = tracing.TracedAnswering(service.answering, made)


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
