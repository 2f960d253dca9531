"""Stored results of steps, in a folder that its user alone can write.

    steps/KEY           a check and a line of JSON: the digest of the result, and when it was made
    results/DIGEST      the bytes of a result
    locks/KEY           locked by whoever computes the result of a key that begins so

Files appear complete or not at all, are checked whenever they are read, and change their time when
they are used. What an open cache uses is locked, so that no process removes it; the kernel unlocks
the files of a process that ends.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from objectstore import Closing, combine, system
from objectstore.atomic import locked, sweep, write_file
from runtime.errors import BadCall
from runtime.training.recipe import path_digest

log = logging.getLogger("pretzel.training")
_COMPUTING_SECONDS = 3600.0
#: Ages outlive processes.
WALL: Callable[[], float] = time.time


class StoredResult(NamedTuple):
    """The result of a step; of a gate with its figure."""

    digest: str
    made: float
    score: float | None = None


class TrainingCache(Closing):
    """The stored results of a folder. Several processes may use it."""

    def __init__(self, folder: str | Path, *, clock: Callable[[], float] = WALL) -> None:
        """Open the folder, or make it; ages are measured by the `clock`."""
        self.folder, self.clock = Path(folder).absolute(), clock
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if doubt := system.doubt_of(self.folder.stat()):  # results are pickles
            what = "results of a training are in a folder that only you can write"
            raise BadCall(what, where=str(self.folder), found=doubt)
        self._steps, self._results = self.folder / "steps", self.folder / "results"
        for each in (self._steps, self._results):
            each.mkdir(exist_ok=True)
        self._locked: dict[str, int] = {}

    def find(self, key: str, max_age: float | None = None) -> StoredResult | None:
        """The result of a key; None if there is none, or it is damaged or `max_age` seconds old."""
        path = self._steps / key
        try:
            found = _stored(path)
            if max_age is not None and abs(self.clock() - found.made) >= max_age:
                return None
            self.path(found.digest)
        except (OSError, ValueError):
            return None
        self._use(path)
        return found

    def path(self, digest: str) -> Path:
        """The file of a result, locked until this is closed; ValueError where it is damaged."""
        path = self._results / digest
        if digest not in self._locked:
            self._locked[digest] = os.open(path, os.O_RDONLY | system.BINARY)
            system.lock(self._locked[digest], shared=True)
        try:
            if path_digest(path) != digest:
                path.unlink()
                raise ValueError(f"the stored result {digest} is damaged")
        except (OSError, ValueError):
            os.close(self._locked.pop(digest))
            raise
        self._use(path)
        return path

    def put(self, key: str, data: bytes, score: float | None = None) -> StoredResult:
        """Store the result of a key."""
        digest = blake2b(data, digest_size=16).hexdigest()
        try:
            self.path(digest)
        except (OSError, ValueError):
            write_file(self._results / digest, [data], durable=False)
            self.path(digest)
        made = StoredResult(digest, self.clock(), score)
        text = json.dumps(made)
        write_file(self._steps / key, [f"{combine(text)} {text}".encode()], durable=False)
        self._use(self._steps / key)
        return made

    def computing(self, key: str) -> AbstractContextManager[bool]:
        """Let one process compute a key's result; after an hour, others do so as well."""
        return locked(self.folder / "locks" / key[:4], _COMPUTING_SECONDS)

    def collect(self, budget: int) -> int:
        """Remove what was used longest ago, until results have `budget` bytes; the bytes removed.

        Results that an open cache uses are left, and a warning says if they have more.
        """
        last = freed = 0
        _ = sweep(self._steps), sweep(self._results)
        files = _files(self._results)
        most = sum(size for _, size, _ in files)
        for used, size, path in files:
            if most - freed > budget and _removed(Path(path)):
                freed, last = freed + size, used
        if most - freed > budget:
            said = "%s: results in use have %d bytes, more than the %d that may stay"
            log.warning(said, self.folder, most - freed, budget)
        for _, _, path in (each for each in _files(self._steps) if each[0] <= last):
            with suppress(OSError, ValueError):
                if not (self._results / _stored(Path(path)).digest).exists():
                    Path(path).unlink()
        return freed

    def close(self) -> None:
        """Let what was used be removed."""
        while self._locked:
            os.close(self._locked.popitem()[1])

    def _use(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            os.utime(path, (self.clock(),) * 2)


def _stored(path: Path) -> StoredResult:
    """The contents of a step's file; ValueError where it is damaged."""
    check, _, text = path.read_text(encoding="utf-8").partition(" ")
    if combine(text) != check:
        raise ValueError(f"{path} is damaged")
    return StoredResult(*json.loads(text))


def _removed(path: Path) -> bool:
    """Remove a result that no process uses; returns whether it was removed."""
    with suppress(FileNotFoundError):  # another process has removed it
        descriptor = os.open(path, os.O_RDWR | system.BINARY)
        try:
            system.lock(descriptor, wait=False)
        except BlockingIOError:
            os.close(descriptor)
            return False
        system.discard(path, descriptor)
    return True


def _files(folder: Path) -> list[tuple[int, int, str]]:
    """When each file of a folder was used, its size and its path, the oldest first."""
    found: list[tuple[int, int, str]] = []
    for each in os.scandir(folder):
        with suppress(FileNotFoundError):
            status = each.stat()
            found.append((status.st_mtime_ns, status.st_size, each.path))
    return sorted(found)
