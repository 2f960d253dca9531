"""Senders of requests, their right to change things, and changes by the buttons of a page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec

from runtime.http.codec.bodies import body_of, json
from runtime.http.guard.guards import Sender, TokenFile
from runtime.http.routes import HandlerContext
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.problems import HttpError

T = TypeVar("T")


def sender(service: HandlerContext, request: Request) -> Sender:
    """The client by its token, else by its certificate, else by its address."""
    tokens = _tokens(service)
    if tokens is not None:
        return tokens.client(request)
    names = request.certified
    return Sender(names[0], known=True) if names else Sender(request.peer, known=False)


def may_change(service: HandlerContext, request: Request) -> bool:
    """True if the client may change routes."""
    tokens = _tokens(service)
    return tokens is None or "change" in tokens.rights(tokens.client(request))


def may_ask(service: HandlerContext, request: Request) -> Callable[[str], bool]:
    """Tell which models are in the scope of the client."""
    tokens = _tokens(service)
    if tokens is None:
        return lambda _: True
    return partial(tokens.may_ask, tokens.client(request))


def _tokens(service: HandlerContext) -> TokenFile | None:
    return next((guard for guard in service.guards if isinstance(guard, TokenFile)), None)


def asked_of(request: Request, kind: type[T]) -> T:
    """Arguments of a change: the body, or without one the query, as buttons have no JSON."""
    if (request.header("sec-fetch-site") or "") in {"cross-site", "same-site"}:
        raise HttpError("pages of other sites change nothing here", 403)
    if request.body or not request.query:
        return body_of(request, kind)
    try:
        return msgspec.convert(dict(parse_qsl(request.query)), kind)
    except msgspec.ValidationError as problem:
        raise HttpError("the query does not fit", found=str(problem)[:200]) from None


def changed(request: Request, body: msgspec.Struct) -> Response:
    """The answer to a change: what there is now, or for a browser the page again."""
    if "text/html" in (request.header("accept") or ""):
        return Response(b"", 303, headers=(("Location", "/"),))
    return json(body)
