"""Who uses a directory of plans, and which of them: files that live processes hold locks on.

The system lets go of a lock when its process ends, in whatever way. So a claim that can be locked
is a dead process' claim, and a directory in which all of them can be is nobody's.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

_PREFIX = ".use-"
WORKERS = ".workers"
"""The file on which workers hold a lock together, in a directory that goes with their server."""


class Claim:
    """Says that this process uses the directory, and what it uses there."""

    def __init__(self, directory: Path, names: Iterable[str] = ()) -> None:
        """Claim these files; FileNotFoundError where the directory is taken away meanwhile."""
        self._directory, self._names = directory, set(names)
        self._path, self._file = _locked(directory)
        self._process = os.getpid()
        self._write(self._names)

    def add(self, name: str) -> None:
        """One more file is used; others know when this returns."""
        if name not in self._names:
            self._names.add(name)
            self._write([name])

    def only(self, names: Iterable[str]) -> Self | Claim:
        """A claim of these files in place of this one: there is one all the time."""
        if self._names == set(names):
            return self
        made = Claim(self._directory, names)
        self.close()
        return made

    def _write(self, names: Iterable[str]) -> None:
        os.write(self._file, "".join(f"{name}\n" for name in sorted(names)).encode())

    def close(self) -> None:
        """Nothing is used any more."""
        if self._file >= 0 and self._process == os.getpid():  # a fork has it, and did not make it
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def _locked(directory: Path) -> tuple[Path, int]:
    """A new file and its lock; who looks for dead ones may take it before it is locked."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        path = directory / f"{_PREFIX}{os.urandom(8).hex()}"
        file = os.open(path, flags, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            return path, file
        os.close(file)


def claims(directory: Path) -> list[Path]:
    """The claims in a directory, of the living and of the dead."""
    return sorted(directory.glob(f"{_PREFIX}*"))


def claimed(directory: Path) -> set[str]:
    """What living processes use; claims of dead ones are removed."""
    found: set[str] = set()
    for path in claims(directory):
        with suppress(FileNotFoundError), _opened(path) as file:
            if _free(file):
                path.unlink(missing_ok=True)
            else:
                found.update(path.read_text(encoding="utf-8").split())
    return found


@contextmanager
def deserted(directory: Path) -> Iterator[bool]:
    """Whether all who used this directory have ended; until the end nobody else finds it so."""
    with ExitStack() as held:
        try:
            files = [held.enter_context(_opened(path)) for path in claims(directory)]
            if files and (directory / WORKERS).exists():
                files.append(held.enter_context(_opened(directory / WORKERS)))
            free = bool(files) and all(_free(each) for each in files)
        except OSError:
            free = False
        yield free


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield file
    finally:
        os.close(file)


def _free(file: int) -> bool:
    """Take the lock, if nobody has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
