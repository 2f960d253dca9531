"""Puts a service together as its settings say: the layers before the engines, and the guards."""

from __future__ import annotations

from functools import partial

from runtime.http.answer.batching import Batched, BatchSettings
from runtime.http.answer.result_cache import Cached
from runtime.http.guard.budget import Budget
from runtime.http.guard.clients import sender
from runtime.http.guard.guards import AtOnce, Crowd, Rates, TokenFile
from runtime.http.routes import HandlerContext
from runtime.http.watch import telemetry
from runtime.http.wire.interfaces import Guard
from runtime.http.wire.settings import ServerSettings
from runtime.http.wire.tls import TlsFiles
from runtime.runtime import Runtime
from runtime.service.answerers import Answerer


def check(settings: ServerSettings) -> None:
    """Raise if a file or a package that these settings need is not there; models load for long."""
    if settings.tokens:
        TokenFile(settings.tokens)
    if settings.tls_cert:
        TlsFiles(settings)
    telemetry.check(settings)


def layers(inner: Answerer, runtime: Runtime, settings: ServerSettings) -> Answerer:
    """The result cache, then batching, then `inner`; notes of a version switch them on as well."""
    together = BatchSettings(settings.batch_wait, settings.batch_objective, settings.batch_rows)
    batched = Batched(inner, together, cost=runtime.direct.expected)
    return Cached(batched, settings.cache_bytes, names=lambda: {*runtime.endpoints.champions})


def guards(service: HandlerContext) -> list[Guard]:
    """The guards of the settings; one that would accept every request is left out."""
    settings, router, who = service.settings, service.router, partial(sender, service)
    active: list[Guard] = []
    if settings.tokens:
        active.append(
            TokenFile(
                settings.tokens,
                required=settings.tokens_required,
                need_of=lambda request: router.need(request.method, request.path),
            )
        )
    if settings.anonymous_rate > 0 or settings.known_rate > 0:
        anonymous, known = settings.anonymous_rate, settings.known_rate
        active.append(Rates(who, anonymous=anonymous, known=known, burst=settings.rate_burst))
    if settings.anonymous_at_once > 0 or settings.known_at_once > 0:
        most = {"anonymous": settings.anonymous_at_once, "known": settings.known_at_once}
        active.append(AtOnce(who, **most))
    if settings.new_bytes_a_day > 0:
        active.append(Budget(who, settings.new_bytes_a_day))
    if settings.max_waiting > 0:
        active.append(Crowd(settings.max_waiting, lambda: service.waiting))
    return active
