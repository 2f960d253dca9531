"""Clients that take their time: everybody else is served as if they were not there."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest

from tests.house import until
from tests.runtime.repository.folders import save_plan
from tests.runtime.workers.house import serving

BODY = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP64","data":[1.5,2.0,3.0,4.0]}]}'
HEAD = b"POST /v2/models/a/infer HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n"
#: What comes byte by byte never comes to its end, however late it is cut off.
LONG = b"a" * 10_000
SLOW, IDLE = 50, 200


class Crowd:
    """Connections that say a byte now and then, or nothing; one thread looks after all of them."""

    def __init__(self, port: int) -> None:
        #: When the first of them may have begun to be slow.
        self.begun = time.monotonic()
        self._connections: dict[socket.socket, list[bytes]] = {}
        for number in range(SLOW * 2 + IDLE):
            made = socket.create_connection(("127.0.0.1", port), timeout=60)
            rest = [b"GET /v2 HTTP/1.1\r\nhost: h\r\nx: " + LONG] if number < SLOW else [LONG]
            if SLOW <= number < SLOW * 2:
                made.sendall(HEAD % len(LONG))  # only what follows is slow
            self._connections[made] = rest if number < SLOW * 2 else []
        #: What those were told that were cut off, and how many were cut off without a word.
        self.told, self.cut, self.sent = list[bytes](), 0, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._drip, daemon=True)
        self._thread.start()

    def _drip(self) -> None:
        with selectors.DefaultSelector() as selector:
            for each in self._connections:
                selector.register(each, selectors.EVENT_READ)
            while not self._ended.wait(0.05):
                for key, _ in selector.select(0):
                    selector.unregister(key.fileobj)
                    self._over(key.fileobj)  # type: ignore[arg-type]  # it is one of our sockets
                for connection, rest in self._connections.items():
                    if rest:
                        with suppress(OSError):  # cut off just now, which is seen the next time
                            connection.sendall(rest[0][:1])
                        rest[0] = rest[0][1:]
                        self.sent += 1

    def _over(self, connection: socket.socket) -> None:
        try:
            found = connection.recv(1 << 16)
        except OSError:
            found = b""
        self.cut += not found
        self.told += [found] if found else []
        del self._connections[connection]
        connection.close()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(60)
        for each in self._connections:
            each.close()


@contextmanager
def crowd(port: int) -> Iterator[Crowd]:
    made = Crowd(port)
    try:
        yield made
    finally:
        made.close()


def durations(port: int, count: int) -> list[float]:
    """How long each of many requests on a connection takes."""
    found = []
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(count):
        start = time.perf_counter()
        connection.request("POST", "/v2/models/a/infer", BODY)
        response = connection.getresponse()
        assert b'"data":[2.5,3.0,4.0,5.0]' in response.read()
        assert response.status == 200
        found.append(time.perf_counter() - start)
    connection.close()
    return found


@pytest.mark.apart  # real seconds of a process with three hundred clients
def test_slow_clients_hold_nobody_up(tmp_path: Path) -> None:
    """Fifty that send headers byte by byte, fifty bodies, two hundred that say nothing at all."""
    save_plan(tmp_path / "a.pretzel", 1.0)
    limits = ("header_seconds=2", "body_seconds=2", "body_rate=1000000000", "idle_seconds=3")
    given = [part for each in limits for part in ("--set", each)]
    with serving(tmp_path, 1, "--poll", "0", *given) as served:
        durations(served.port, 200)
        alone = np.percentile(durations(served.port, 1000), 90)
        with crowd(served.port) as many:
            beside = list[float]()
            while len(beside) < 1000 and time.monotonic() - many.begun < 1.5:
                beside += durations(served.port, 50)
            # On a machine that stood still they may have been told already.
            assert many.told == [] or time.monotonic() - many.begun > 2.0
            # The crowd takes some of the processor, as a busy machine does; nobody waits for it.
            assert np.percentile(beside or [0.0], 90) < 20 * alone + 0.05
            until(lambda: many.cut + len(many.told) == SLOW * 2 + IDLE, "somebody is not cut off")
            assert many.sent > SLOW * 10, "they were at it"
            assert len(many.told) == SLOW * 2
            assert all(each.startswith(b"HTTP/1.1 408 ") for each in many.told)
            assert many.cut == IDLE
        durations(served.port, 10)
