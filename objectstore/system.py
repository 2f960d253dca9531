"""Ways of Linux that other systems lack, each with what is done instead.

Code that needs one asks here. tests/test_platforms.py takes each of them away and uses the product;
docs/reference/platforms.md says what is slower then.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

LINUX = sys.platform == "linux"
#: Files in which the kernel tells its figures; elsewhere there are none, and these are left out.
PROC = Path("/proc")
#: Flags of `os.open`. Every file that Python opens is closed in programs that it starts.
BINARY = getattr(os, "O_BINARY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
#: Opening a pipe that was put in the place of a file must not hang.
READ = os.O_RDONLY | BINARY | getattr(os, "O_NONBLOCK", 0)
#: The family of sockets in the file system; no socket has this one where there are none.
UNIX: int | None = getattr(socket, "AF_UNIX", None)
#: Sockets at one port get their share of connections; elsewhere, several take them from one.
SHARED_PORTS = LINUX and hasattr(socket, "SO_REUSEPORT")
#: Programs that are started can be given sockets.
HANDS_ON = sys.platform != "win32"
#: The signal to read files again.
RELOAD: int | None = getattr(signal, "SIGHUP", None)
#: Files that are open can be renamed and deleted.
MOVES_OPEN = sys.platform != "win32"
#: The number of the user that may do anything.
ROOT = 0
#: Where Windows locks a file for others: beyond what is in it, as others cannot read it there. One
#: that shares the lock has one of these bytes, one that does not has all of them.
_LOCKED_FROM, _SHARES = 0x7FFF_0000, 64
_LOCK_POLL = 0.01
#: Names of the C library where the process itself does not lead to it.
_C_LIBRARIES = ("ucrtbase", "libc.so.6", "libSystem.dylib")


class _Open(Protocol):
    """An open file."""

    def fileno(self) -> int:
        """Its number."""


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        return None


_fcntl = _module("fcntl")
_msvcrt: Any = None if _fcntl else _module("msvcrt")


# --- files ----------------------------------------------------------------------------------------


def lock(file: int | _Open, *, shared: bool = False, wait: bool = True) -> None:
    """Lock a file until it is closed; BlockingIOError where another has it, without `wait`."""
    number = file if isinstance(file, int) else file.fileno()
    if _fcntl is not None:
        how = _fcntl.LOCK_SH if shared else _fcntl.LOCK_EX
        _fcntl.flock(number, how if wait else how | _fcntl.LOCK_NB)
        return
    if _msvcrt is None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    while not _locked_bytes(number, shared=shared):
        if not wait:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        time.sleep(_LOCK_POLL)


def _locked_bytes(number: int, *, shared: bool) -> bool:
    """Lock one byte, or all; False if another has them."""
    before = os.lseek(number, 0, os.SEEK_CUR)
    try:
        for place in range(_SHARES if shared else 1):
            os.lseek(number, _LOCKED_FROM + place, os.SEEK_SET)
            with suppress(OSError):
                _msvcrt.locking(number, _msvcrt.LK_NBLCK, 1 if shared else _SHARES)
                return True
    finally:
        os.lseek(number, before, os.SEEK_SET)
    return False


def discard(path: Path, descriptor: int) -> None:
    """Delete an open file, and close it; elsewhere the other way round."""
    if MOVES_OPEN:
        path.unlink(missing_ok=True)
    os.close(descriptor)
    if not MOVES_OPEN:
        with suppress(PermissionError):  # another process has opened it to look
            path.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make names in a directory durable; Windows does that by itself."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def doubt_of(status: os.stat_result) -> str:
    """Why a file or folder may be another user's; empty if only we or root can write it.

    Files of Windows have no such numbers: who may write is inherited from the user's own folder.
    """
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in {ROOT, os.geteuid()}:
        return "it belongs to another user"
    return "other users can write to it (chmod go-w it)" if status.st_mode & 0o022 else ""


def is_own_folder(status: os.stat_result) -> bool:
    """True for a directory of this user."""
    mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return mine and stat.S_ISDIR(status.st_mode)


def told(name: str) -> str:
    """A file of the kernel below /proc; empty where there is none."""
    try:
        return (PROC / name).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


# --- memory and code ------------------------------------------------------------------------------


@cache
def c_library() -> ctypes.CDLL:
    """The C library of this process."""
    with suppress(OSError, TypeError):  # Windows refuses to look into all libraries
        return ctypes.CDLL(None, use_errno=True)
    for name in _C_LIBRARIES:
        with suppress(OSError):
            return ctypes.CDLL(name, use_errno=True)
    raise OSError(errno.ENOENT, "no C library was found", ", ".join(_C_LIBRARIES))


def function(name: str) -> Any:
    """A function of the C library; None if it has none of this name."""
    return getattr(c_library(), name, None)


def mapped(descriptor: int, size: int) -> NDArray[np.uint8]:
    """The pages of a file, where the C library has no call of its own for that."""
    return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), np.uint8)


# --- processes and threads ------------------------------------------------------------------------


def at_fork(**calls: Callable[[], object]) -> None:
    """Call these around a fork, as `os.register_at_fork` does; else nothing forks."""
    register = getattr(os, "register_at_fork", None)
    if register is not None:
        register(**calls)


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def signal_name(number: int) -> str:
    """The name of a signal, or its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def open_files() -> tuple[int, int] | None:
    """How many files may be open now and at most, -1 for any; None where nothing limits them."""
    resource = _module("resource")
    if resource is None:
        return None
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    now, most = (-1 if each == resource.RLIM_INFINITY else int(each) for each in limits)
    return now, most


def thread_seconds(thread: int) -> float:
    """The processor time of a thread; 0 where the system does not tell that of another one."""
    clock = getattr(time, "pthread_getcpuclockid", None)
    return 0.0 if clock is None else time.clock_gettime(clock(thread))


def on_signal(loop: AbstractEventLoop, number: int, call: Callable[[], object]) -> None:
    """Call this in an event loop when a signal comes."""
    try:
        loop.add_signal_handler(number, call)
    except NotImplementedError:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(call))
