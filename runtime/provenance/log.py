"""A log of records in files of bounded size, the oldest of which are deleted.

    answers-00000001.log    8 bytes (length, checksum) and a record, any number

A process that is killed leaves at most one record unfinished; reading ends there, and the next
writer begins another file. One process writes a folder at a time, others may read it.
"""

from __future__ import annotations

import errno
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import NamedTuple
from zlib import crc32

from objectstore import system
from objectstore.atomic import write_file
from runtime.errors import OutputInUse

_HEAD = struct.Struct("<II")
#: Most bytes of a file.
FILE_BYTES = 16 << 20


class RecordPlace(NamedTuple):
    """The position of a record."""

    path: Path
    offset: int


class AnswerLog:
    """The records of a folder, by id."""

    def __init__(
        self,
        folder: Path,
        id_of: Callable[[bytes], str],
        most_bytes: int,
        seconds: float | None = None,
    ) -> None:
        """Open a folder for writing; `id_of` reads a record's id.

        Files that together are larger than `most_bytes`, or older than `seconds`, are deleted.
        """
        self._folder, self._id_of, self._seconds = folder, id_of, seconds
        self._most, self._file_bytes = most_bytes, min(FILE_BYTES, max(most_bytes // 4, 1))
        folder.mkdir(parents=True, exist_ok=True)
        self._lock, self._places = RLock(), dict[str, RecordPlace]()
        self._owner = (folder / "lock").open("ab")
        try:
            system.lock(self._owner, wait=False)
        except OSError:
            self._owner.close()
            raise OutputInUse(
                "another process keeps answers in this folder",
                where=folder.name,
                hint="give each process, and each runtime, a folder of its own",
            ) from None
        for path in self.files():
            for offset, record in _records(path):
                self._places[id_of(record)] = RecordPlace(path, offset)
        self._begin()

    def files(self) -> list[Path]:
        """The files, the oldest first."""
        return sorted(self._folder.glob("answers-*.log"))

    def _begin(self) -> None:
        """Begin another file."""
        numbers = [int(path.stem.rpartition("-")[2]) for path in self.files()]
        self._path = self._folder / f"answers-{max(numbers, default=0) + 1:08}.log"
        self._file, self._begun = self._path.open("ab", buffering=0), time.monotonic()

    def append(self, records: list[tuple[str, bytes]]) -> None:
        """Write all these records with their ids, or none of them if there is no room."""
        with self._lock:
            try:
                self._write(records)
                if self._file.tell() >= self._file_bytes:
                    self.turn()
            finally:
                self.expire()

    def _write(self, records: list[tuple[str, bytes]]) -> None:
        start = self._file.tell()
        data, places = _laid_out(self._path, records, start)
        try:
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:  # a record that is cut off would hide those after it from other readers
            self._file.seek(start)
            self._file.truncate()
            raise
        self._places |= places

    def find(self, answer: str) -> bytes | None:
        """The record of an id, or None if there is none that can be read."""
        with self._lock:
            place = self._places.get(answer)
            if place is None:
                return None
            with place.path.open("rb") as file:
                file.seek(place.offset)
                record = _next(file.read(_HEAD.size), file.read)
            return record if record and self._id_of(record) == answer else None

    def expire(self) -> int:
        """Delete files that are too old, and the oldest where all are too large; how many."""
        with self._lock:
            if self._seconds is not None and time.monotonic() - self._begun > self._seconds / 4:
                self.turn()
            *older, _ = files = self.files()
            sizes = {path: path.stat() for path in files}
            total, now, gone = sum(each.st_size for each in sizes.values()), time.time(), set()
            for path in older:
                is_old = self._seconds is not None and now - sizes[path].st_mtime > self._seconds
                if is_old or total > self._most:
                    total -= sizes[path].st_size
                    path.unlink()
                    gone.add(path)
            if gone:
                left = self._places.items()
                self._places = {name: place for name, place in left if place.path not in gone}
            return len(gone)

    def turn(self) -> None:
        """Close the file that is written, so that it may grow old."""
        with self._lock:
            if self._file.tell():
                former = self._file
                self._begin()
                former.close()

    def remove(self, is_meant: Callable[[bytes], bool]) -> int:
        """Write the files anew without these records; how many they were."""
        with self._lock:
            self.turn()
            removed = 0
            for path in self.files()[:-1]:
                every = list(_records(path))
                kept = [record for _, record in every if not is_meant(record)]
                if len(kept) < len(every):
                    data, places = _laid_out(path, [(self._id_of(each), each) for each in kept])
                    write_file(path, [data])
                    removed += len(every) - len(kept)
                    for _, record in every:
                        self._places.pop(self._id_of(record), None)
                    self._places |= places
            return removed

    def __len__(self) -> int:
        return len(self._places)

    def close(self) -> None:
        """End writing."""
        with self._lock:
            self._file.close()
            if not self._path.stat().st_size:
                self._path.unlink()
            self._owner.close()


def read_record(folder: Path, is_meant: Callable[[bytes], bool]) -> bytes | None:
    """The first such record of a folder that another process may write."""
    for path in sorted(folder.glob("answers-*.log")):
        with suppress(FileNotFoundError):  # its writer has deleted it meanwhile
            for _, record in _records(path):
                if is_meant(record):
                    return record
    return None


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    """The whole records of a file with their offsets."""
    with path.open("rb") as file:
        offset = 0
        while (record := _next(file.read(_HEAD.size), file.read)) is not None:
            yield offset, record
            offset = file.tell()


def _laid_out(
    path: Path, records: list[tuple[str, bytes]], offset: int = 0
) -> tuple[bytes, dict[str, RecordPlace]]:
    """Records one behind another as bytes of a file from `offset` on, and the place of each."""
    places, chunks = dict[str, RecordPlace](), list[bytes]()
    for answer, record in records:
        places[answer] = RecordPlace(path, offset)
        chunks.append(_HEAD.pack(len(record), crc32(record)) + record)
        offset += len(chunks[-1])
    return b"".join(chunks), places


def _next(head: bytes, read: Callable[[int], bytes]) -> bytes | None:
    if len(head) < _HEAD.size:
        return None
    length, checksum = _HEAD.unpack(head)
    body = read(length) if length else b""  # a power cut may leave zeros, whose checksum is right
    return body if body and len(body) == length and crc32(body) == checksum else None
