"""A replica's connection to the controller, which is opened again when it breaks, and its lease.

A replica may answer for a few seconds after it has asked the controller, counted from when it
asked, so its lease ends no later than the controller thinks. While no controller can be reached it
asks the state of the cluster: so it answers on, unless a controller that lives has forbidden it.
"""

from __future__ import annotations

import hmac
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from runtime.errors import ChannelClosed
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.problems import refusal
from runtime.workers.channel import Channel, Handler

#: Beats in the time of a lease.
BEATS = 5
#: Seconds between two attempts to reach the controller, and for one of them.
_PAUSE, _CONNECT = 0.1, 2.0
_BYTES = 32


class Address(NamedTuple):
    """The controller's address, and the secret of those that may join."""

    host: str
    port: int
    secret: str


class Lease:
    """Until when a replica may answer. As a guard it refuses requests after that."""

    def __init__(
        self,
        seconds: float,
        allowed: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`allowed` tells whether this replica may answer although it reaches no controller."""
        self.seconds, self._allowed, self.clock = seconds, allowed, clock
        self._until = float("-inf")
        self._refusal = refusal(
            "this replica has lost its cluster, and may have old models",
            503,
            (("Retry-After", "1"),),
        )

    def renew(self, asked: float) -> None:
        """The lease was asked for at this moment of `clock`, and is given."""
        self._until = max(self._until, asked + self.seconds)

    def keep(self) -> None:
        """Renew a lease that no controller has renewed for two beats, if that is allowed."""
        asked, renewed = self.clock(), self._until - self.seconds
        if float("-inf") < renewed < asked - 2 * self.seconds / BEATS and self._allowed():
            self.renew(asked)

    @property
    def held(self) -> bool:
        """True if it may answer."""
        return self.clock() < self._until

    def __call__(self, request: Request) -> Response | None:
        """Refuse where the lease has ended; the process still says that it lives."""
        if self.clock() < self._until or request.path == "/v2/health/live":
            return None
        return self._refusal


class Link:
    """The end of a channel that outlives its connections."""

    def __init__(
        self,
        find: Callable[[], Address],
        lease: Lease,
        said: tuple[Callable[[], object], Callable[[], object]],
        handle: Handler,
        gone: Callable[[], object],
    ) -> None:
        """`find` looks for the controller; `said` are what is told it first, and with each beat.

        `gone` is called when a controller has given this replica up. No controller is no reason.
        """
        self._find, self._lease, self._handle, self._gone = find, lease, handle, gone
        self._hello, self._report = said
        self._channel: Channel | None = None
        self._closed = threading.Event()

    def start(self, name: str) -> None:
        """Connect, and go on doing so."""
        for task in (partial(self._turns, name), self._keeps):
            threading.Thread(target=task, name="pretzel-link", daemon=True).start()

    def ask(self, kind: str, body: object = None) -> Future[Any]:
        """Send a question; its future fails where there is no connection now."""
        channel = self._channel
        if channel is not None:
            return channel.ask(kind, body)
        future: Future[Any] = Future()
        future.set_exception(ChannelClosed("the controller cannot be reached"))
        return future

    def close(self) -> None:
        """Disconnect, and do not connect again."""
        self._closed.set()
        if self._channel is not None:
            self._channel.close()

    def _turns(self, name: str) -> None:
        pause = 0.0
        while not self._closed.wait(pause):
            pause = self.turn(name)

    def _keeps(self) -> None:
        """Apart from the turns, as looking for the controller may take long."""
        while not self._closed.wait(self._lease.seconds / BEATS):
            self._lease.keep()

    def turn(self, name: str) -> float:
        """Connect, or report; returns the seconds until the next turn."""
        try:
            if self._channel is None or self._channel.closed:
                self._connect(name)
            else:
                self.beat()
            return self._lease.seconds / BEATS
        except Exception:  # noqa: BLE001 (whatever it is, another controller may be reached)
            channel, self._channel = self._channel, None
            if channel is not None:
                channel.close()
            return _PAUSE

    def _connect(self, name: str) -> None:
        address = self._find()
        connection = socket.create_connection((address.host, address.port), _CONNECT)
        connection.sendall(bytes.fromhex(address.secret))
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        channel = Channel(connection, self._handle, lambda: None)
        channel.start(name)
        self._channel = channel  # what it is told after "hello" may make it ask something
        if not channel.ask("hello", self._hello()).result(self._lease.seconds):
            self._closed.set()
            self._gone()

    def beat(self) -> None:
        """Report, and have the lease renewed if this replica has followed all changes."""
        asked = self._lease.clock()
        if self.ask("beat", self._report()).result(self._lease.seconds):
            self._lease.renew(asked)


def admitted(
    connection: socket.socket, secret: str, clock: Callable[[], float] = time.monotonic
) -> bool:
    """Return whether a peer proves within two seconds that it knows the secret."""
    said, end = b"", clock() + _CONNECT
    while len(said) < _BYTES and (left := end - clock()) > 0:
        connection.settimeout(left)
        part = connection.recv(_BYTES - len(said))
        if not part:
            return False
        said += part
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return hmac.compare_digest(said, bytes.fromhex(secret))
