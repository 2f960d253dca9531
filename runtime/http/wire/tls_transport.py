"""TLS between a socket and its connection: a protocol of the one, the transport of the other.

OpenSSL reads from memory and writes to it, so a small request costs two calls of it. A client that
speaks plain HTTP gets a connection as well, which can answer what is wrong.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, cast

from runtime.http.wire.interfaces import Listener
from runtime.http.wire.problems import log

#: The first bytes of a plain request; those of a handshake begin with one that is no letter.
_FIRST, _PLAIN = 5, re.compile(rb"[A-Z]{3}")
#: Bytes that are encrypted at once.
_PIECE = 256 << 10
#: Seconds that a client has to end the connection, once it is told that nothing more comes.
_LINGER_SECONDS = 2.0


class TlsTransport(asyncio.BufferedProtocol):
    """One client's TLS. All of it runs on the event loop's thread."""

    __slots__ = (
        *("_above", "_below", "_closing", "_coming", "_first", "_going", "_held", "_make"),
        *("_server", "_shaking", "_timer", "_tls", "plain"),
    )

    def __init__(
        self,
        server: Listener,
        context: ssl.SSLContext,
        seconds: float,
        make: Callable[[], asyncio.BufferedProtocol],
        shaking: set[TlsTransport],
    ) -> None:
        """`make` makes the connection above, after a handshake that takes at most these seconds.

        Until then it is one of those that are `shaking` hands.
        """
        self._server, self._make, self._shaking = server, make, shaking
        shaking.add(self)
        self._coming, self._going = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._coming, self._going, server_side=True)
        self._above: asyncio.BufferedProtocol | None = None
        self._below: Any = None
        self._first = b""  # the first bytes of all, until it is clear that they are a handshake's
        self._held = self._closing = self.plain = False
        self._timer: asyncio.TimerHandle | None = server.loop.call_later(seconds, self._late)

    # --- what the socket calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._below = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._unshaken("closed")
        self._closing = True
        self._stop_timer()
        if self._above is not None:
            self._above.connection_lost(exc)

    def eof_received(self) -> bool:
        """The client sends no more."""
        self._ended()
        return False

    def pause_writing(self) -> None:
        """The client does not read."""
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        if self._above is not None:
            self._above.resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where encrypted bytes go, before OpenSSL copies them."""
        return self._server.memory

    def buffer_updated(self, nbytes: int) -> None:
        """Encrypted bytes."""
        if self._closing or self.plain:
            return
        try:
            self._coming.write(self._server.memory[:nbytes])
            if self._above is None:
                self._shake(self._server.memory[: min(nbytes, _FIRST)].tobytes())
            self._read()
        except ssl.SSLWantReadError:  # a part of a record, or of the handshake
            self._flush()
        except ssl.SSLError as problem:
            self._unshaken(problem)
            log.debug("TLS with %s: %s", self._below.get_extra_info("peername"), problem)
            self._flush()  # there may be an alert, which says why
            self.close()

    # --- TLS ---------------------------------------------------------------------------------

    def _shake(self, data: bytes) -> None:
        """Go on with the handshake, of which there is none with a plain request."""
        if len(self._first) < _FIRST:
            self._first += data
            if len(self._first) < _FIRST:
                return
            self.plain = _PLAIN.match(self._first) is not None
        if self.plain:
            self._unshaken("plain")
        else:
            self._tls.do_handshake()
            self._flush()
        self._stop_timer()
        self._above = self._make()
        self._above.connection_made(cast("asyncio.Transport", self))

    def _unshaken(self, problem: ssl.SSLError | str) -> None:
        """Count a handshake that began, and does not end."""
        if self._first and self._above is None:
            self._server.handshakes.add(self._below.get_extra_info("peername"), problem)
            self._first = b""  # it is counted once

    def _late(self) -> None:
        """End a handshake that takes too long."""
        self._unshaken("timeout")
        self.abort()

    def _read(self) -> None:
        """Give the connection what has come, unless it wants nothing now."""
        coming, tls = self._coming, self._tls
        while self._above is not None and (coming.pending or tls.pending()):
            if self._held or self._closing or self.plain:
                return
            room = cast("memoryview", self._above.get_buffer(-1))
            size = read = cast("int", tls.read(len(room), room))
            try:
                while read and size < len(room) and (coming.pending or tls.pending()):
                    read = cast("int", tls.read(len(room) - size, room[size:]))
                    size += read
            finally:  # the last bytes may be a part of a record
                if size:
                    self._above.buffer_updated(size)
            if not read:
                self._ended()
        if self._going.pending:
            self._flush()

    def _ended(self) -> None:
        if self._above is not None and not self._closing:
            self._above.eof_received()
        self.close()

    def _flush(self) -> None:
        if self._going.pending:
            self._below.write(self._going.read())

    def _stop_timer(self) -> None:
        self._shaking.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- what the connection calls -----------------------------------------------------------

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes."""
        if self._closing:
            return
        if self.plain:
            self._below.write(data)
            return
        if len(data) <= _PIECE:
            if data:
                self._tls.write(data)
                self._below.write(self._going.read())
            return
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left[:_PIECE]) :]
            self._below.write(self._going.read())

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        """Send bytes that belong together."""
        self.write(b"".join(parts))

    def pause_reading(self) -> None:
        """Read no more for now."""
        self._held = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading, and first with what has come already."""
        if self._held:
            self._held = False
            self._below.resume_reading()
            self._server.loop.call_soon(self.buffer_updated, 0)

    def close(self) -> None:
        """End TLS and the connection, once the client has had a moment to read all."""
        if self._closing:
            return
        if self._above is not None and not self.plain:
            with suppress(ssl.SSLError):  # the client has not said that it ends
                self._tls.unwrap()
            self._flush()
        self._closing = True
        self._stop_timer()
        if self._below.can_write_eof():
            self._below.write_eof()
            self._below.resume_reading()  # until the client ends it, too
            self._timer = self._server.loop.call_later(_LINGER_SECONDS, self._below.close)
        else:
            self._below.close()

    def abort(self) -> None:
        """Close at once."""
        self._below.abort()

    def is_closing(self) -> bool:
        """True if nothing more is sent."""
        return self._closing or bool(self._below.is_closing())

    def can_write_eof(self) -> bool:
        """False: TLS ends for both sides."""
        return self.plain and bool(self._below.can_write_eof())

    def write_eof(self) -> None:
        """Send no more to a plain client."""
        self._below.write_eof()

    def get_write_buffer_size(self) -> int:
        """Bytes that the system has not taken yet."""
        return int(self._below.get_write_buffer_size())

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have another connection above."""
        self._above = cast("asyncio.BufferedProtocol", protocol)

    def get_extra_info(self, name: str, default: object = None) -> Any:
        """A fact of the connection; `ssl_object` is OpenSSL's, if the client speaks TLS."""
        if name == "ssl_object":
            return None if self.plain else self._tls
        return self._below.get_extra_info(name, default)
