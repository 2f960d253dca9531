"""The least that can be called an HTTP client: what was said, as it was said."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import IO, Any

from tests.house import until


@dataclass
class Reply:
    """An answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert set(self.json) == {"error"}
        message: str = self.json["error"]
        return message


class Client:
    """A new connection for each request; inside TLS where there is a context for it."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self.port, self.context = port, context

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        if self.context is None:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        else:
            connection = HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self.context)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            return _reply(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        return self.ask("POST", path, data, headers)

    def beside(self, call: Callable[[], Reply]) -> tuple[Reply, float, float]:
        """The answer to a call, its seconds, and the longest that another client waited then."""
        waits, ended = [0.0], threading.Event()

        def ask() -> None:
            while not ended.is_set():
                start = time.perf_counter()
                assert self.get("/v2/health/live").status == 200
                waits.append(time.perf_counter() - start)

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: len(waits) > 5)
        start = time.perf_counter()
        reply = call()
        took = time.perf_counter() - start
        ended.set()
        asking.join()
        return reply, took, max(waits)

    def raw(self) -> socket.socket:
        """A connection to say anything on."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        if self.context is None:
            return plain
        return self.context.wrap_socket(plain, server_hostname="localhost")

    def say(self, *data: bytes, count: int = 1) -> list[Reply]:
        """Answers to some bytes, sent one after the other."""
        with self.raw() as connection:
            for part in data:
                connection.sendall(part)
            return replies(connection, count)


def replies(connection: socket.socket, count: int = 1) -> list[Reply]:
    """The next answers on a connection, to be read before any is sent that is not asked for."""
    with connection.makefile("rb") as stream:
        return [_next(stream) for _ in range(count)]


def _next(stream: IO[bytes]) -> Reply:
    made = HTTPResponse(_Stream(stream))  # type: ignore[arg-type]  # all it uses of a socket
    made.begin()
    return _reply(made)


class _Stream:
    """A stream that an answer does not close when it has been read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.read, self.readline = stream.read, stream.readline
        self.readinto = getattr(stream, "readinto", None)

    def makefile(self, *_: object) -> Any:
        return self

    def close(self) -> None:
        pass

    def flush(self) -> None:
        pass


def _reply(response: HTTPResponse) -> Reply:
    body = response.read()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, body)
