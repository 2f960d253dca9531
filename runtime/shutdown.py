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
        """No signal has come yet."""
        self._is_set = False
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)  # one byte is as good as many

    def set(self) -> None:
        """Ask for the end; from any thread, and from handlers."""
        self._is_set = True
        with suppress(OSError):
            self._writer.send(b"\0")

    def is_set(self) -> bool:
        """True if the end was asked for."""
        return self._is_set

    def wait(self) -> None:
        """Wait until the end is asked for."""
        while not self._is_set:
            self._reader.recv(16)

    def wake(self) -> int:
        """Let signals end a wait, so that their handlers run; the file that they woke before."""
        return signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)

    def close(self) -> None:
        """Close the sockets, after the last wait."""
        self._reader.close()
        self._writer.close()
