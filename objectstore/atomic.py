"""Atomic files: complete or absent, also if the process that writes them is killed.

A file is written under a temporary name in the directory it belongs to, made durable, and only
then renamed; rename replaces in one step. The writer holds a lock on its temporary file, which the
kernel releases when the process ends. So any process can tell an abandoned file from one being
written, without relying on process numbers or clocks.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

from objectstore import system

log = logging.getLogger("pretzel.objectstore")
_say_once = cache(log.warning)
Chunk = bytes | memoryview
"""Bytes to write."""

_PREFIX = ".pretzel-"
_SUFFIX = ".tmp"

# A sweep may take a temporary file in the instant between its creation and its lock.
_ATTEMPTS = 5
#: Seconds between looks at a lock that another process has.
_LOOK_SECONDS = 0.02
#: Seconds after which a lock that is waited for is told.
TELL_SECONDS = 5.0
#: Errors of folders in which no file can be locked.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def write_file(path: Path, chunks: Sequence[Chunk], *, durable: bool = True) -> None:
    """Write a file with these bytes, replacing an existing one atomically."""
    for _ in range(_ATTEMPTS - 1):
        if _try_to_write(path, chunks, durable=durable):
            return
    if not _try_to_write(path, chunks, durable=durable):
        raise FileNotFoundError(f"a temporary file next to {path} vanished {_ATTEMPTS} times")


def sweep(directory: Path) -> int:
    """Delete the temporary files of ended writers; returns their number."""
    return sum(_removed_leftover(path) for path in leftovers(directory))


def leftovers(directory: Path) -> list[Path]:
    """The temporary files here, of living and of ended writers."""
    return [path for path in directory.iterdir() if is_temporary(path.name)]


def is_temporary(name: str) -> bool:
    """True if a file name is one that `write_file` uses while it writes."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def make_directory(path: Path, *, durable: bool = True) -> None:
    """Create a directory whose parent exists, unless it exists already."""
    with suppress(FileExistsError):
        path.mkdir()
        if durable:
            system.sync_directory(path.parent)


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[bool]:
    """Hold the lock of a file, which is made; False if another process has it for so long.

    The kernel unlocks the files of a process that ends, and of all that it forked. In a folder
    without locks, nothing is waited for.
    """
    start, mine, tells = time.monotonic(), False, True
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        while not mine and (waited := time.monotonic() - start) < seconds:
            try:
                _lock(file, path.parent, wait=False)
                mine = True
            except BlockingIOError:
                if tells and waited >= TELL_SECONDS:
                    log.warning("%s is locked by another process: waiting for it", path)
                    tells = False
                time.sleep(_LOOK_SECONDS)
        yield mine


def _lock(file: int | IO[bytes], folder: Path, *, wait: bool = True) -> bool:
    """Lock a file; False, said once, where the folder has no locks."""
    try:
        system.lock(file, wait=wait)
    except OSError as problem:
        if problem.errno not in _NO_LOCKS:
            raise
        _say_once("%s has no locks: processes that write there at once do not wait", folder)
        return False
    return True


def unwritable(directory: Path) -> str:
    """Why no file can be written in a directory, which is made if it is not there; else empty."""
    from tempfile import TemporaryFile  # most programs write no such directory

    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=directory, buffering=0) as file:
            file.write(bytes(4096))  # a full disk still has room for a name
    except OSError as problem:
        return problem.strerror or type(problem).__name__
    return ""


def _try_to_write(path: Path, chunks: Sequence[Chunk], *, durable: bool) -> bool:
    temporary = path.parent / f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BINARY
    with os.fdopen(os.open(temporary, flags, 0o666), "wb", buffering=0) as file:
        try:
            _lock(file, path.parent)
            for chunk in chunks:
                rest = memoryview(chunk)
                while rest:  # one call may write fewer bytes (at most 2 GiB on Linux)
                    rest = rest[os.write(file.fileno(), rest) :]
            if durable:
                os.fsync(file.fileno())
            if not system.MOVES_OPEN:
                file.close()  # a sweep that takes it now is seen, and it is written again
            if not _renamed(temporary, path):
                return False
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    if durable:
        system.sync_directory(path.parent)
    return True


def _renamed(temporary: Path, path: Path) -> bool:
    """Rename the temporary file; False if a sweep has deleted it."""
    try:
        temporary.replace(path)
    except FileNotFoundError:
        return False
    return True


def _removed_leftover(path: Path) -> bool:
    """Delete a temporary file unless its writer lives; returns whether it was deleted."""
    try:
        descriptor = os.open(path, os.O_RDWR | system.BINARY)
    except FileNotFoundError:
        return False
    try:
        is_left = _lock(descriptor, path.parent, wait=False)
    except BlockingIOError:
        is_left = False
    if not is_left:
        os.close(descriptor)
        return False
    there = bool(os.fstat(descriptor).st_nlink)
    system.discard(path, descriptor)
    return there
