"""Answers that are kept while a file is written, so that a run that was killed can go on.

A Parquet file cannot be read, or added to, before its last byte is written. So each batch of
answers is also appended to a journal beside the output:

    one line of JSON       what is computed: the plan, the files, the options
    12 bytes, a stream     the length and the checksum of an Arrow stream of one batch, and the
                           stream; any number

The next run with the same first line begins with these batches and computes the rest; with another
line it begins anew. A batch that was being written when the process ended is cut off, and so is all
from a damaged one on. The journal stays after every error: a full disk, or a row that is refused.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from flour.data.arrow_reader import Arrow, library
from objectstore import system
from runtime.errors import OutputInUse

_HEAD = struct.Struct("<QI")
#: The version of this layout, and of what its users write into batches' metadata.
FORMAT = 2


class Journal:
    """The batches of answers so far. Used as a context: left without an error, it is removed."""

    def __init__(self, path: Path, task: Mapping[str, Any]) -> None:
        self._path = path
        self._first = json.dumps({"journal": FORMAT, **task}, sort_keys=True).encode() + b"\n"
        self._file = path.open("a+b")
        while not self._is_ours():  # another process has finished, and removed it
            self._file.close()
            self._file = path.open("a+b")
        self._file.seek(0)
        if (first := self._file.readline()) != self._first:
            self._file.truncate(0)
            self._file.write(self._first)
            self._file.flush()
        self._is_empty = first != self._first or not self._file.read(1)

    def _is_ours(self) -> bool:
        """Lock the file; whether it is still the one of this name."""
        try:
            system.lock(self._file, wait=False)
        except BlockingIOError:
            self._file.close()
            raise OutputInUse(
                "another process is writing this output",
                where=self._path.name,
                hint="wait for it, or choose another --output",
            ) from None
        except OSError:
            return True  # a file system without locks
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        return False

    def batches(self, fits: Callable[[Arrow], bool] = lambda _: True) -> Iterator[Arrow]:
        """The batches of an earlier run, up to one that does not fit; then more can be appended."""
        self._file.seek(len(self._first))
        whole = self._file.tell()
        while (found := self._next()) is not None and fits(found):
            whole, self._is_empty = self._file.tell(), False
            yield found
        self._file.truncate(whole)
        self._file.seek(whole)

    def _next(self) -> Arrow | None:
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        length, checksum = _HEAD.unpack(head)
        left = self._path.stat().st_size - self._file.tell()  # a length may be damaged, too
        body = self._file.read(length) if length <= left else b""
        if not length or len(body) < length or crc32(body) != checksum:  # zeros are no batch
            return None
        return library().ipc.open_stream(body).read_next_batch()

    def append(self, batch: Arrow) -> None:
        """Keep the next batch of answers."""
        pa = library()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        body = sink.getvalue()
        self._file.write(_HEAD.pack(len(body), crc32(body)))
        self._file.write(body)
        self._file.flush()
        self._is_empty = False

    def close(self) -> None:
        """Leave what is there for the next run."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """After an error we go on with what there is, if there is anything."""
        if kind is None or (self._is_empty and issubclass(kind, Exception)):
            self._path.unlink(missing_ok=True)
        with suppress(OSError):  # what could not be written on a full disk cannot be now
            self.close()
