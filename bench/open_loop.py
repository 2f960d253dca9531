"""Requests over HTTP at times that are fixed before, whatever the server does: an open loop.

    python -m bench.open_loop PORT PATH BODY RATE SECONDS [DEADLINE]

Run it in a process of its own: within the server's, it would wait for the server's GIL when it
ought to send. Each request goes out at its time, on a connection that is idle or on a new one; a
client that waits for answers before it asks again would never offer more than the server can take.
Waits count from the time at which a request was due. With a rate of 0, eight clients ask one
request after the other, which shows what the server can do. BODY is a file; DEADLINE is sent with
each request, in milliseconds. The outcome is printed as JSON.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

#: Clients that ask one request after the other where no rate is given.
CLIENTS = 8
#: After the last request, answers are waited for so long.
_LAST_SECONDS = 5.0


@dataclass
class Outcome:
    """The answers by status ("lost" without one), and the waits in seconds."""

    seconds: float
    statuses: dict[str, int] = field(default_factory=dict)
    good: list[float] = field(default_factory=list)
    """The waits for answers with status 200."""
    refused: list[float] = field(default_factory=list)
    """The waits for any other answer."""
    late: float = 0.0
    """How late a request was sent, at worst, as this process did not get to run."""

    def rate(self, within: float) -> float:
        """Good answers a second that came in time."""
        return sum(wait <= within for wait in self.good) / self.seconds

    def percentile(self, share: float) -> float:
        """The wait that this share of good answers did not exceed."""
        return float(np.quantile(self.good, share)) if self.good else float("inf")


class _Client:
    """A connection, with one request on its way."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", port))  # a server that is behind accepts late
        self.due = 0.0
        self.left = memoryview(b"")
        self.received = b""

    def send(self) -> bool:
        """Send what the system takes; whether all is sent."""
        try:
            self.left = self.left[self.socket.send(self.left) :]
        except BlockingIOError:
            return False
        return not self.left

    def answer(self) -> int | None:
        """The status, once the whole answer is there."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise ConnectionResetError
        self.received += piece
        head, end, body = self.received.partition(b"\r\n\r\n")
        if not end:
            return None
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        return int(head[9:12]) if len(body) >= length else None


class OpenLoop:
    """Sends one message again and again."""

    def __init__(self, port: int, message: bytes) -> None:
        self._port, self._message = port, memoryview(message)
        self._selector = selectors.DefaultSelector()
        self._idle: list[_Client] = []
        self._open = 0
        self._waits: list[tuple[str, float]] = []
        self._late = 0.0

    def offer(self, rate: float, seconds: float, seed: int = 0) -> Outcome:
        """Send `rate` requests a second for `seconds`, and wait for the answers."""
        start, end = time.perf_counter(), time.perf_counter() + seconds
        gaps = np.random.default_rng(seed).exponential(1 / (rate or 1), int(rate * seconds * 2))
        due = [each for each in (start + np.cumsum(gaps)).tolist() if each < end]
        due.reverse()
        for _ in range(0 if rate else CLIENTS):
            self._ask(start)
        while due or self._open:
            now = time.perf_counter()
            if now > end + _LAST_SECONDS:
                break
            while due and due[-1] <= now:
                self._ask(due.pop())
            pause = max(0.0, due[-1] - time.perf_counter()) if due else 0.05
            done = self._turn(pause)
            for _ in range(0 if rate or time.perf_counter() > end else done):
                self._ask(time.perf_counter())
        late = [(key.data.due, "lost") for key in self._selector.get_map().values()]
        now = time.perf_counter()
        waits = [*self._waits, *((status, now - due) for due, status in late)]
        return Outcome(
            seconds,
            dict(Counter(status for status, _ in waits)),
            [round(wait, 6) for status, wait in waits if status == "200"],
            [round(wait, 6) for status, wait in waits if status != "200"],
            round(self._late, 6),
        )

    def _ask(self, due: float) -> None:
        try:
            client = self._idle.pop() if self._idle else _Client(self._port)
        except OSError:
            self._waits.append(("lost", time.perf_counter() - due))
            return
        client.due, client.left, client.received = due, self._message, b""
        self._open += 1
        self._late = max(self._late, time.perf_counter() - due)
        wanted = selectors.EVENT_READ
        if not client.send():
            wanted |= selectors.EVENT_WRITE
        self._selector.register(client.socket, wanted, client)

    def _turn(self, pause: float) -> int:
        """Look after all connections once; the number of requests that have ended."""
        ended = 0
        for key, events in self._selector.select(pause):
            status: int | str | None = None
            try:
                if events & selectors.EVENT_WRITE and key.data.send():
                    self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
                if events & selectors.EVENT_READ:
                    status = key.data.answer()
            except OSError:
                status = "lost"
            if status is not None:
                ended += 1
                self._end(key.data, str(status))
        return ended

    def _end(self, client: _Client, status: str) -> None:
        self._open -= 1
        self._waits.append((status, time.perf_counter() - client.due))
        self._selector.unregister(client.socket)
        if status == "lost" or client.left or b"connection: close" in client.received:
            client.socket.close()
        else:
            self._idle.append(client)


def message(path: str, body: bytes, deadline: float = 0.0) -> bytes:
    """A whole request; `deadline` in milliseconds, 0 for none."""
    limit = f"x-request-timeout-ms: {deadline:g}\r\n" if deadline else ""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{limit}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def main() -> None:
    """Offer load as the command line says."""
    port, path, body, rate, seconds, *deadline = sys.argv[1:]
    whole = message(path, Path(body).read_bytes(), float(deadline[0]) if deadline else 0.0)
    print(json.dumps(asdict(OpenLoop(int(port), whole).offer(float(rate), float(seconds)))))


if __name__ == "__main__":
    main()
