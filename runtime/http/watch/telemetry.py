"""Attaches observers of requests by the settings: metrics, access log, traces.

Observers that are off are not attached, so they cost nothing.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from flour.core.errors import ParameterError
from objectstore.atomic import unwritable
from runtime.http.guard.clients import sender
from runtime.http.guard.guards import TokenFile
from runtime.http.routes import HandlerContext
from runtime.http.watch import logs
from runtime.http.watch.access_log import STANDARD_ERROR, AccessLog, open_target
from runtime.http.watch.audit_log import AuditLog
from runtime.http.watch.metrics import Metrics
from runtime.http.wire.messages import Request
from runtime.http.wire.problems import log
from runtime.http.wire.settings import ServerSettings
from runtime.http.wire.tls import TlsFiles


def check(settings: ServerSettings) -> None:
    """Raise if a file or a package that these settings need is not there; models load for long."""
    if settings.tokens:
        TokenFile(settings.tokens)
    if settings.tls_cert:
        TlsFiles(settings)
    _check_targets(settings)


def _check_targets(settings: ServerSettings) -> None:
    """Raise if what is to be written cannot be, or the package for tracing is missing."""
    if settings.answers:
        folder = Path(settings.answers)
        what = "this is standard error" if str(folder) == STANDARD_ERROR else unwritable(folder)
        if what:
            where, hint = f"ServerSettings.answers: {folder}", "a folder that can be written"
            raise ParameterError("answers cannot be kept here", where=where, found=what, hint=hint)
    logs = (settings.access_log, AccessLog.name), (settings.audit_log, AuditLog.name)
    for target, name in logs:
        if target not in {"", STANDARD_ERROR}:
            open_target(str(target), name).close()
    if settings.tracing:
        try:
            import opentelemetry.trace as _  # noqa: F401 (whether it is there)
        except ModuleNotFoundError as problem:
            raise ParameterError(
                "tracing needs a distribution more",
                where="ServerSettings.tracing",
                found=f"no {problem.name}",
                hint="pip install 'pretzel-runtime[trace]'",
            ) from problem


def attach(service: HandlerContext) -> None:
    """Attach the observers that the settings enable."""
    settings = service.settings
    _check_targets(settings)
    logs.configure(settings)
    if settings.metrics:
        service.metrics = Metrics(service)
    if settings.access_log:
        target, share = str(settings.access_log), settings.access_log_share
        service.observers.append(AccessLog(target, share, client=partial(sender, service)))
    if settings.audit_log:
        audit = AuditLog(str(settings.audit_log), service.router, client=partial(sender, service))
        service.observers.append(audit)
        service.enter = audit.entering(service.enter)
    if settings.tracing:
        _trace(service)


def _trace(service: HandlerContext) -> None:
    from opentelemetry import trace

    from runtime.http.watch.tracing import TracedAnswering, Tracing

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
