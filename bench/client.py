"""A small HTTP client for load: complete requests built beforehand, answers by length."""

from __future__ import annotations

import gc
import json
import re
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

from bench.histogram import Histogram

#: Without any answer for so many seconds, a server has failed.
PATIENCE = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
Done = Callable[[int, int, bytes], None]
"""Takes the number of a request in its sequence, its nanoseconds, and the body of its answer."""


class Connection:
    """One persistent connection: `send` a request, then `receive` until its answer is whole."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = self.start = 0
        self._received = b""

    def send(self, number: int, request: bytes) -> None:
        """Send a request, and keep its number and its time."""
        self.number, self._received = number, b""
        self.start = time.perf_counter_ns()
        self.socket.sendall(request)

    def receive(self) -> bytes | None:
        """The body of the answer; None if more of it is to come."""
        part = self.socket.recv(1 << 16)
        if not part:
            raise ConnectionError("it hung up without an answer")
        self._received = self._received + part if self._received else part
        return _body(self._received)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def _body(received: bytes) -> bytes | None:
    """The body of a whole answer, None of a part of one; raises if the status is not 200."""
    head, end, body = received.partition(b"\r\n\r\n")
    if not end:
        return None
    length, made = _LENGTH.search(head), body
    if length is None and _CHUNKED.search(head):
        joined = _joined(body)
        if joined is None:
            return None
        made = joined
    elif len(body) < int(length[1] if length else 0):
        return None
    if b" 200 " not in head.split(b"\r\n", 1)[0]:
        raise ConnectionError(f"{head[:40]!r} {made[:200]!r}")
    return made


def _joined(body: bytes) -> bytes | None:
    """The content of chunks; None if the last one is not there."""
    made = b""
    while True:
        size, end, body = body.partition(b"\r\n")
        if not end or len(body) < (length := int(size, 16)) + 2:
            return None
        if not length:
            return made
        made, body = made + body[:length], body[length + 2 :]


def answer(port: int, request: bytes) -> list[float]:
    """The numbers of the first output of one answer."""
    with closing(Connection(port)) as connection:
        connection.send(0, request)
        while (body := connection.receive()) is None:
            pass
    return last_output(body, 0)


def last_output(body: bytes, place: int = -1) -> list[float]:
    """The numbers of an output of an answer."""
    return [float(each) for each in json.loads(body)["outputs"][place]["data"]]


def race(
    port: int, requests: Sequence[bytes], connections: int, seconds: float, done: Done | None = None
) -> Histogram:
    """Times of requests: each connection sends its next request after its last answer.

    `done` is called with every answer, after the next request of its connection has gone out.
    """
    times: list[int] = []
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for number in range(connections):
            connection = stack.enter_context(closing(Connection(port)))
            connection.send(number, requests[number % len(requests)])
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        stack.callback(gc.enable)
        gc.disable()
        _run(selector, requests, connections, seconds, done or _nothing, times)
    return Histogram(times)


def _run(
    selector: selectors.BaseSelector,
    requests: Sequence[bytes],
    sent: int,
    seconds: float,
    done: Done,
    times: list[int],
) -> None:
    """Read answers and send requests until the time is over; `sent` have gone out."""
    clock, count = time.perf_counter_ns, len(requests)
    end = clock() + int(1e9 * seconds)
    while (now := clock()) < end:
        for key, _ in selector.select((end - now) / 1e9):
            connection: Connection = key.data
            body = connection.receive()
            if body is None:
                continue
            number, took = connection.number, clock() - connection.start
            connection.send(sent, requests[sent % count])
            sent += 1
            times.append(took)
            done(number % count, took, body)


def _nothing(*_: object) -> None:
    """Leave an answer unread."""
