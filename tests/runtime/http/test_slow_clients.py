"""Clients that take their time: everybody else is served as if they were not there."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import numpy as np

from tests.runtime.repository.folders import save_plan
from tests.runtime.workers.house import serving

BODY = b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP64","data":[1.5,2.0,3.0,4.0]}]}'
HEAD = b"POST /v2/models/a/infer HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % len(BODY)
SLOW, IDLE = 50, 200


class Crowd:
    """Connections that say a byte now and then, or nothing; one thread looks after all of them."""

    def __init__(self, port: int) -> None:
        self._connections: dict[socket.socket, list[bytes]] = {}
        for number in range(SLOW * 2 + IDLE):
            made = socket.create_connection(("127.0.0.1", port), timeout=20)
            rest = [HEAD] if number < SLOW else [BODY]
            if SLOW <= number < SLOW * 2:
                made.sendall(HEAD)  # only what follows is slow
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
                    if rest and rest[0]:
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
        self._thread.join(20)
        for each in self._connections:
            each.close()


@contextmanager
def crowd(port: int) -> Iterator[Crowd]:
    made = Crowd(port)
    try:
        yield made
    finally:
        made.close()


def durations(connection: HTTPConnection, count: int) -> list[float]:
    """How long each of many requests takes."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        connection.request("POST", "/v2/models/a/infer", BODY)
        response = connection.getresponse()
        assert b'"data":[2.5,3.0,4.0,5.0]' in response.read()
        assert response.status == 200
        found.append(time.perf_counter() - start)
    return found


def test_slow_clients_hold_nobody_up(tmp_path: Path) -> None:
    """Fifty that send headers byte by byte, fifty bodies, two hundred that say nothing at all."""
    save_plan(tmp_path / "a.pretzel", 1.0)
    limits = ("header_seconds=2", "body_seconds=2", "body_rate=1000000000", "idle_seconds=3")
    given = [part for each in limits for part in ("--set", each)]
    with serving(tmp_path, 1, "--poll", "0", *given) as served:
        connection = HTTPConnection("127.0.0.1", served.port, timeout=20)
        durations(connection, 200)
        alone = np.percentile(durations(connection, 1000), 99)
        with crowd(served.port) as many:
            end, beside = time.monotonic() + 1.5, list[float]()
            while time.monotonic() < end:
                beside += durations(connection, 50)
            assert many.sent > SLOW * 10, "they are at it"
            assert many.told == []
            # The crowd takes some of the processor, as a busy machine does; nobody waits for it.
            assert np.percentile(beside, 99) < 10 * alone + 0.01
            end = time.monotonic() + 20
            while many.cut + len(many.told) < SLOW * 2 + IDLE and time.monotonic() < end:
                durations(connection, 1)  # whoever talks is not idle
                time.sleep(0.01)
            assert len(many.told) == SLOW * 2
            assert all(each.startswith(b"HTTP/1.1 408 ") for each in many.told)
            assert many.cut == IDLE
        durations(connection, 10)
        connection.close()
