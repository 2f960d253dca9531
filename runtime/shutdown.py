"""When to end: said by threads and by signal handlers, and heard by the main thread in any case.

An `Event` will not do. The system may deliver a signal to any thread of a process. Where that is
not the main thread, which alone runs handlers, the main thread goes on waiting for its lock and
does not notice. And a handler that sets an event takes a lock that the code it interrupts may hold.
"""

from __future__ import annotations

import signal
import socket
from contextlib import suppress


class Ending:
    """Set once, and waited for at a socket, which signals write to wherever they arrive."""

    def __init__(self) -> None:
        """Nobody has said anything."""
        self._said = False
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)  # one byte is as good as many

    def set(self) -> None:
        """Say it; from any thread, and from handlers."""
        self._said = True
        with suppress(OSError):
            self._writer.send(b"\0")

    def is_set(self) -> bool:
        """Whether it was said."""
        return self._said

    def wait(self) -> None:
        """Wait until it is said."""
        while not self._said:
            self._reader.recv(16)

    def wake(self) -> int:
        """Let signals end a wait, so that their handlers run; what did so before."""
        return signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)

    def close(self) -> None:
        """Nobody waits any more."""
        self._reader.close()
        self._writer.close()
