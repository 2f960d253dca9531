"""Routes: one table, from which requests are dispatched and the OpenAPI document is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from runtime.http.codec.bodies import Ready
from runtime.http.codec.model_codec import ModelCodec
from runtime.http.snapshots import SnapshotSource
from runtime.http.wire.interfaces import Attributing, Guard, ModelRepository, Need, Observer, Peers
from runtime.http.wire.lag import Lag
from runtime.http.wire.messages import GRPC_METHOD, JSON, Answer, Request
from runtime.http.wire.problems import HttpError
from runtime.http.wire.settings import ServerSettings
from runtime.http.wire.tls import HandshakeFailures
from runtime.runtime import Runtime
from runtime.service.answerers import Answerer
from runtime.service.stacks import Stacks
from runtime.service.version import ModelVersion


class HandlerContext:
    """The service as handlers see it."""

    runtime: Runtime
    settings: ServerSettings
    repository: ModelRepository | None
    #: What answers under an address, of a stack with a height of one; see Endpoints.routes.
    table: Mapping[str, ModelVersion]
    answering: Answerer
    #: The stacks of endpoints above that, once one was asked for.
    stacks: Stacks | None
    guards: list[Guard]
    observers: list[Observer]
    peers: Peers
    #: Requests whose answers are awaited now.
    waiting: int
    #: Called with a request whose answer is awaited; gives what is called when it has ended.
    enter: Callable[[Request], Callable[[object], None]] | None
    #: How far the event loop is behind.
    lag: Lag
    #: Failed handshakes of TLS.
    handshakes: HandshakeFailures
    #: What handlers do that takes long, so that the event loop does not wait for it.
    threads: Executor
    routes: tuple[HttpRoute, ...]
    router: Router
    metrics: SnapshotSource | None
    #: Answers requests that ask why.
    attribution: Attributing

    def answered_by(self, answering: Answerer) -> HandlerContext:
        """This service for one request that something else answers."""
        other = object.__new__(type(self))
        vars(other).update(vars(self), answering=answering)
        return other

    def ready(self) -> Ready:
        """True if the models that should be there are, and which are missing."""
        raise NotImplementedError

    def front(self, name: str, version: str | None = None) -> ModelCodec:
        """The codec of the version that an address means, made now or before."""
        raise NotImplementedError


Handler = Callable[[HandlerContext, Request], Answer]


#: Most paths in the cache of routes, which is cleared when full.
REMEMBERED = 4096


class RequestParameter(NamedTuple):
    """A query parameter or header of a request, for OpenAPI."""

    name: str
    kind: Any
    """Its type, as in bodies."""
    summary: str


@dataclass(frozen=True, slots=True, eq=False)
class HttpRoute:
    """A method and a path, with the handler and the documentation."""

    method: str
    path: str
    """Parts in braces are variables; each is one segment, or the part of it before a colon."""
    handler: Handler
    summary: str
    body: Any = None
    """The type of the body, for OpenAPI: a msgspec structure or a schema."""
    answer: Any = None
    """The type of a successful answer."""
    statuses: tuple[int, ...] = ()
    """Error statuses of this route, in addition to those of every route."""
    query: tuple[RequestParameter, ...] = ()
    """Its query parameters."""
    headers: tuple[RequestParameter, ...] = ()
    """Its headers."""
    body_required: bool = False
    content_type: str = JSON
    hidden: bool = False
    """Another name of a route, which OpenAPI does not list."""
    tag: str = "inference"
    right: str = "read"
    """The right that a client needs: predict, read or change."""
    scoped: bool = False
    """True if it is for clients that may ask some models only, though its path names no model."""


@dataclass(slots=True)
class Router:
    """Finds the route of a request, once for each path."""

    routes: Sequence[HttpRoute]
    _patterns: list[tuple[re.Pattern[str], dict[str, HttpRoute]]] = field(default_factory=list)
    _known: dict[tuple[str, str], tuple[Handler, Mapping[str, str]]] = field(default_factory=dict)
    _needs: dict[tuple[str, str], Need] = field(default_factory=dict)

    def __post_init__(self) -> None:
        by_path: dict[str, dict[str, HttpRoute]] = {}
        for route in self.routes:
            by_path.setdefault(route.path, {})[route.method] = route
        self._patterns = [(_pattern(path), methods) for path, methods in by_path.items()]

    def find(self, method: str, path: str) -> tuple[Handler, Mapping[str, str]]:
        """The handler for a request, and the values of its path's variables."""
        found = self._known.get((method, path))
        if found is None:
            found = self._find("GET" if method == "HEAD" else method, path)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[method, path] = found
        return found

    def template(self, method: str, path: str) -> str | None:
        """The path of the route in the table; None if no route matches."""
        route = self._route(method, path)
        return route.path if route else None

    def need(self, method: str, path: str) -> Need:
        """The right and the scope that a request needs; no right if no route matches."""
        need = self._needs.get((method, path))
        if need is None:
            route, need = self._route(method, path), Need("", None, scoped=True)
            if route is not None:
                model = self.find(method, path)[1].get("model")
                need = Need(route.right, model, route.scoped)
            if len(self._needs) >= REMEMBERED:
                self._needs.clear()
            self._needs[method, path] = need
        return need

    def _route(self, method: str, path: str) -> HttpRoute | None:
        plain = path.rstrip("/") or "/"
        for pattern, methods in self._patterns:
            if pattern.fullmatch(plain) is not None:
                return methods.get("GET" if method == "HEAD" else method)
        return None

    def _find(self, method: str, path: str) -> tuple[Handler, Mapping[str, str]]:
        for pattern, methods in self._patterns:
            match = pattern.fullmatch(path.rstrip("/") or "/")
            if match is None:
                continue
            if method in methods:
                values = match.groupdict().items()
                return methods[method].handler, {key: _unquoted(text) for key, text in values}
            raise _wrong_method(method, methods)
        raise HttpError(
            *("there is nothing here", 501 if method == GRPC_METHOD else 404),
            where=path[:200],
            hint="/openapi.json lists all",
        )


def _wrong_method(method: str, methods: Mapping[str, HttpRoute]) -> HttpError:
    allowed = [*methods, *(["HEAD"] if "GET" in methods else [])]
    allow = {"Allow": ", ".join(allowed)}
    return HttpError(f"{method} has no meaning here", 405, hint=allow["Allow"], headers=allow)


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise HttpError("the path is no UTF-8", 404) from None


def _pattern(path: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+\})", path)
    expressions = [
        f"(?P<{part[1:-1]}>[^/]+?)" if part[:1] == "{" else re.escape(part) for part in parts
    ]
    return re.compile("".join(expressions))
