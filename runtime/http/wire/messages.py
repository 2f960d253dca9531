"""Requests, the calls that they are decoded to, and responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from flour.core.request_ids import id_of

if TYPE_CHECKING:
    from runtime.service.version import ModelVersion

JSON = "application/json"
OCTETS = "application/octet-stream"
#: The type of a message of gRPC, and what stands in the place of the method of its request.
GRPC, GRPC_METHOD = "application/grpc", "GRPC"

#: The header with the length of the JSON part of a body with raw tensors.
HEADER_LENGTH = "inference-header-content-length"
#: The header of an answer that tells which version gave it, where a route has chosen one.
VERSION_HEADER = "X-Model-Version"
#: Headers of an answer in binary: the digest of the plan that gave it and, where that is a parity
#: model, of the plan that it was trained for.
PLAN_HEADER, PARITY_OF = "X-Model-Plan", "X-Parity-Of"
#: The header with the id of an answer that is kept.
ANSWER_HEADER = "x-answer-id"
#: The header with the milliseconds that the client will wait.
TIMEOUT_HEADER = "x-request-timeout-ms"


class Addressed(Protocol):
    """The meaning of a request, as its handler found it."""

    @property
    def version(self) -> ModelVersion:
        """The version that answers it."""


class Request:
    """One request, complete. Header names are in lower case."""

    #: Seconds for which its bytes lay in the system's buffers, as the event loop was busy.
    waited = 0.0
    #: True if that is so long that it is refused.
    late = False
    #: The value of the header with its id, see `id`.
    named: bytes | None = None
    _id = ""
    #: The address of the client; empty where it has none.
    peer = ""
    #: The names in the certificate of the client, which an authority of the server vouches for.
    certified: tuple[str, ...] = ()
    #: The values of the path's variables, by the names of the route's pattern.
    params: Mapping[str, str] = MappingProxyType({})
    #: The codec of the version that it went to, for observers; None before it is known.
    front: Addressed | None = None
    #: The message that the body is, where it is one of gRPC and was read.
    message: Any = None
    #: Called once when there is an answer that was awaited, or the client has given up.
    ended: Callable[[object], None] | None = None
    #: Its trace, if it is traced.
    trace: Any = None

    def __init__(
        self,
        method: str,
        path: str,
        query: str,
        headers: Mapping[bytes, bytes],
        body: bytes | memoryview,
        started: float = 0.0,
        names: tuple[bytes, ...] | None = None,
    ) -> None:
        """Make a request; `names` are those of `headers`, where these are not in lower case."""
        self.method, self.path, self.query = method, path, query
        self._headers, self._names, self.body = headers, names, body
        #: True if no header changes how the body is read, or how soon it has to be answered.
        self.plain = not headers
        #: By `time.perf_counter`: when it had arrived, which may be long before it was read.
        self.started = started or perf_counter()

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """The headers, by their names in lower case."""
        if self._names is not None:
            self._headers = dict(zip(self._names, self._headers.values(), strict=True))
            self._names = None
        return self._headers

    @property
    def id(self) -> str:
        """The client's `X-Request-Id`, or trace; a new id where it has sent neither."""
        self._id = self._id or id_of(self.named)
        return self._id

    def header(self, name: str) -> str | None:
        """A header's value."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1").strip()

    def __repr__(self) -> str:
        return f"Request({self.method} {self.path}, {len(self.body)} bytes)"


class Response:
    """A status, a body, a content type and headers; immutable."""

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


class MessageSeries(Response):
    """The first message of an answer to a call of gRPC that has several."""

    __slots__ = ("messages",)

    def __init__(self, body: bytes, messages: Callable[[], AsyncIterator[bytes]]) -> None:
        """`messages` makes what gives the further ones; it is closed when nobody waits for them."""
        super().__init__(body, content_type=GRPC)
        self.messages = messages


#: The result of a handler: a response, or an awaitable of one.
Answer = Response | Awaitable[Response]
