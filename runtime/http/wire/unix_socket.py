"""Sockets in the file system: `unix:PATH` in place of a host."""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from objectstore import system

PREFIX = "unix:"
#: Time for other servers that begin or end in the same folder; and for a server to take a probe.
_LOCK_SECONDS, _PROBE_SECONDS = 5.0, 1.0


def address_of(listener: socket.socket) -> tuple[str, int]:
    """Host and port of a socket that listens; one in the file system has port 0."""
    name = listener.getsockname()
    return (f"{PREFIX}{name}", 0) if isinstance(name, str) else (str(name[0]), int(name[1]))


def listen_at(path: str, mode: int, backlog: int) -> socket.socket:
    """Listen at a path with these permissions; `OSError` if a server listens there already."""
    if system.UNIX is None:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    with _alone_in(Path(path).absolute().parent):
        remove_unused(path)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(path)
            Path(path).chmod(mode)  # before it listens, nobody can connect
            listener.listen(backlog)
        except BaseException:
            listener.close()
            raise
    return listener


def remove_unused(path: str) -> None:
    """Remove the socket at a path where nobody listens; `OSError` for anything else."""
    try:
        found = Path(path).lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found):
        raise FileExistsError(errno.EEXIST, "there is a file that is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink()
            return
        except (BlockingIOError, TimeoutError):  # its queue is full
            pass
    raise OSError(errno.EADDRINUSE, "another server listens there")


def close(listener: socket.socket) -> None:
    """Close a socket, and remove its file if no other process listens there."""
    host = address_of(listener)[0]
    listener.close()
    remove_file(host)


def remove_file(host: str) -> None:
    """Remove the file of an address where nobody listens any more, if it has one."""
    path = host.removeprefix(PREFIX)
    if path != host:
        with suppress(OSError), _alone_in(Path(path).absolute().parent):
            remove_unused(path)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder: a server that has not begun to listen looks like an unused file."""
    number, end = os.open(folder, os.O_RDONLY), time.monotonic() + _LOCK_SECONDS
    try:
        while True:
            try:
                system.lock(number, wait=False)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        yield
    finally:
        os.close(number)
