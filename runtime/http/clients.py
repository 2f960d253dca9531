"""Who sent a request, as histories name it."""

from __future__ import annotations

from runtime.http.guards import Tokens
from runtime.http.messages import Request
from runtime.http.routes import HandlerContext


def client_name(service: HandlerContext, request: Request) -> str:
    """The client by its token, else by its address."""
    tokens = [guard for guard in service.guards if isinstance(guard, Tokens)]
    return tokens[0].client(request).name if tokens else request.peer
