"""Assembles a server from its settings: answering, guards, peers.

`Server` itself takes any parts, for callers with their own.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

from runtime.http.batching import Batched, BatchSettings
from runtime.http.budget import Budget
from runtime.http.guards import AtOnce, Crowd, Rates, Tokens
from runtime.http.interfaces import Answering, Direct, Guard, Peers, Repository
from runtime.http.result_cache import Cached
from runtime.http.routes import Route
from runtime.http.server import Server, check_address
from runtime.http.settings import ServerSettings
from runtime.service.runtime import Runtime


def check(settings: ServerSettings) -> None:
    """Raise what would keep a server with these settings from starting; models load for long."""
    check_address(settings)
    Tokens(settings.tokens or None)


def assembled(
    runtime: Runtime,
    settings: ServerSettings,
    *,
    repository: Repository | None = None,
    routes: Sequence[Route] = (),
    sockets: Sequence[socket.socket] = (),
    peers: Peers | None = None,
) -> Server:
    """A server with all parts that its settings name; it does not listen yet."""
    server = Server(
        runtime,
        settings,
        repository=repository,
        answering=answering(runtime, settings),
        routes=routes,
        sockets=sockets,
        peers=peers,
    )
    server.service.guards += guards(server, settings)
    return server


def answering(runtime: Runtime, settings: ServerSettings) -> Answering:
    """The layers before the engines: the result cache, then batching."""

    def names() -> set[str]:
        return {each.name for each in runtime.endpoints()}

    together = BatchSettings(settings.batch_wait, settings.batch_objective, settings.batch_rows)
    batched = Batched(Direct(runtime), together, cost=runtime.expected)
    return Cached(batched, settings.cache_bytes, names=names)


def guards(server: Server, settings: ServerSettings) -> list[Guard]:
    """The guards; one that would accept every request is left out."""
    active: list[Guard] = []
    router = server.service.router
    tokens = Tokens(
        settings.tokens or None,
        required=settings.tokens_required,
        right_of=lambda request: router.right(request.method, request.path),
    )
    if settings.tokens:
        active.append(tokens)
    if settings.anonymous_rate > 0 or settings.known_rate > 0:
        active.append(
            Rates(
                tokens.client,
                anonymous=settings.anonymous_rate,
                known=settings.known_rate,
                burst=settings.rate_burst,
            )
        )
    if settings.anonymous_at_once > 0 or settings.known_at_once > 0:
        at_once = AtOnce(
            tokens.client, anonymous=settings.anonymous_at_once, known=settings.known_at_once
        )
        server.service.enter = at_once.enter
        active.append(at_once)
    if settings.new_bytes_a_day > 0:
        active.append(Budget(tokens.client, settings.new_bytes_a_day))
    if settings.max_waiting > 0:
        service = server.service
        active.append(Crowd(settings.max_waiting, lambda: service.waiting))
    return active
