"""Atomic files: complete or absent, also if the process that writes them is killed.

A file is written under a temporary name in the directory it belongs to, made durable, and only
then renamed; rename replaces in one step. The writer holds a lock on its temporary file, which the
kernel releases when the process ends. So any process can tell an abandoned file from one being
written, without relying on process numbers or clocks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from objectstore import system

Chunk = bytes | memoryview
"""Bytes to write."""

_PREFIX = ".pretzel-"
_SUFFIX = ".tmp"

# A sweep may take a temporary file in the instant between its creation and its lock.
_ATTEMPTS = 5


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


def unwritable(directory: Path) -> str:
    """Why no file can be written in a directory, which is made if it is not there; else empty."""
    from tempfile import TemporaryFile  # most programs write no such directory

    try:
        directory.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=directory).close()
    except OSError as problem:
        return problem.strerror or type(problem).__name__
    return ""


def _try_to_write(path: Path, chunks: Sequence[Chunk], *, durable: bool) -> bool:
    temporary = path.parent / f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BINARY
    with os.fdopen(os.open(temporary, flags, 0o666), "wb", buffering=0) as file:
        try:
            system.lock(file)
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
        system.lock(descriptor, wait=False)
    except BlockingIOError:
        os.close(descriptor)
        return False
    there = bool(os.fstat(descriptor).st_nlink)
    system.discard(path, descriptor)
    return there
