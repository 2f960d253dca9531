"""A request as it came in, a response as it goes out; nothing in between."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from runtime.service.version import ModelVersion

JSON = "application/json"
OCTETS = "application/octet-stream"

#: How long the JSON part of a body with raw tensors is.
HEADER_LENGTH = "inference-header-content-length"
#: How many milliseconds the client will wait, as a header.
TIMEOUT_HEADER = "x-request-timeout-ms"


class Addressed(Protocol):
    """What a request was found to mean."""

    @property
    def version(self) -> ModelVersion:
        """The version that answers it."""


class Request:
    """One request, complete. Header names are in lower case."""

    __slots__ = (
        *("_headers", "_names", "body", "front", "method", "params", "path", "peer", "plain"),
        *("query", "started", "trace"),
    )

    def __init__(
        self,
        method: str,
        path: str,
        query: str,
        headers: Mapping[bytes, bytes],
        body: bytes,
        started: float = 0.0,
        names: tuple[bytes, ...] | None = None,
    ) -> None:
        """Make a request; `names` are those of `headers`, where these are not in lower case."""
        self.method, self.path, self.query = method, path, query
        self._headers, self._names, self.body = headers, names, body
        #: Whether no header changes how the body is read, or how soon it has to be answered.
        self.plain = False
        #: By `time.perf_counter`: when all of it had arrived.
        self.started = started
        #: The address of the client; empty where it has none.
        self.peer = ""
        #: What the path says, by the names of the route's pattern.
        self.params: Mapping[str, str] = {}
        #: The version that it went to, for those who count; None as long as there is none.
        self.front: Addressed | None = None
        #: What is traced of it, if it is.
        self.trace: Any = None

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The headers, by their names in lower case."""
        if self._names is not None:
            self._headers = dict(zip(self._names, self._headers.values(), strict=True))
            self._names = None
        return self._headers

    def header(self, name: str) -> str | None:
        """A header's value."""
        found = self.headers.get(name.encode())
        return None if found is None else found.decode("latin-1").strip()

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path}, {len(self.body)} bytes)"


class Response:
    """A status, a body, and what has to be said about it. Nobody changes one."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes = b"",
        status: int = 200,
        content_type: str = JSON,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.body, self.status = body, status
        self.content_type, self.headers = content_type, headers

    def __repr__(self) -> str:
        return f"Response({self.status}, {len(self.body)} bytes of {self.content_type})"


#: What a handler returns: a response, or what will be one.
Answer = Response | Awaitable[Response]
