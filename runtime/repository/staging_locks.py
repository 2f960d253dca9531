"""Claims on a directory of plans and on files in it: lock files held by living processes.

The system releases a lock when its process ends, in any way. So a claim that can be locked belongs
to an ended process, and a directory in which all claims can be locked is unused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from objectstore import system

_PREFIX = ".use-"
WORKERS = ".workers"
"""The file that workers lock together, in a directory that is removed with their server."""


class Claim:
    """A claim of this process on a directory and on files in it."""

    def __init__(self, directory: Path, names: Iterable[str] = ()) -> None:
        """Claim these files; FileNotFoundError if the directory is removed meanwhile."""
        self._directory, self._names = directory, set(names)
        self._path, self._file = _new_locked_file(directory)
        self._process = os.getpid()
        self._write(self._names)

    def add(self, name: str) -> None:
        """Claim one more file; other processes see it when this returns."""
        if name not in self._names:
            self._names.add(name)
            self._write([name])

    def only(self, names: Iterable[str]) -> Claim:
        """Replace this claim by one of these files, without a moment between them."""
        if self._names == set(names):
            return self
        successor = Claim(self._directory, names)
        self.close()
        return successor

    def _write(self, names: Iterable[str]) -> None:
        os.write(self._file, "".join(f"{name}\n" for name in sorted(names)).encode())

    def close(self) -> None:
        """Release the claim; a fork of the process that made it changes nothing."""
        if self._file >= 0 and self._process == os.getpid():
            system.discard(self._path, self._file)
            self._file = -1


def _new_locked_file(directory: Path) -> tuple[Path, int]:
    """A new, locked file; one that another process removed before it was locked is retried."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | system.NO_LINK
    while True:
        path = directory / f"{_PREFIX}{os.urandom(8).hex()}"
        file = os.open(path, flags, 0o600)
        system.lock(file)
        if os.fstat(file).st_nlink:
            return path, file
        os.close(file)


def claims(directory: Path) -> list[Path]:
    """All claims in a directory, of living and of ended processes."""
    return sorted(directory.glob(f"{_PREFIX}*"))


def claimed(directory: Path) -> set[str]:
    """The files that living processes claim; claims of ended processes are removed."""
    names: set[str] = set()
    for path in claims(directory):
        with suppress(FileNotFoundError, PermissionError), _open_claim(path) as file:
            if _try_lock(file):
                path.unlink(missing_ok=True)
            else:
                names.update(path.read_text(encoding="utf-8").split())
    return names


@contextmanager
def deserted(directory: Path) -> Iterator[bool]:
    """True if all users of this directory have ended; true in one process at a time."""
    with ExitStack() as held:
        try:
            files = [held.enter_context(_open_claim(path)) for path in claims(directory)]
            if files and (directory / WORKERS).exists():
                files.append(held.enter_context(_open_claim(directory / WORKERS)))
            free = bool(files) and all(_try_lock(each) for each in files)
        except OSError:
            free = False
        yield free


@contextmanager
def _open_claim(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | system.NO_LINK)
    try:
        yield file
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    """Take the lock; False if another process holds it."""
    try:
        system.lock(file, wait=False)
    except BlockingIOError:
        return False
    return True
