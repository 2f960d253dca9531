"""Answers that are kept while a file is written, so that a run that was killed can go on.

A Parquet file cannot be read, or added to, before its last byte is written. So each batch of
answers is also appended to a journal beside the output:

    one line of JSON       what is computed: the plan, the files, the options
    12 bytes, a stream     the length and the checksum of an Arrow stream of one batch, and the
                           stream; any number

The next run with the same first line begins with these batches and computes the rest; with another
line it begins anew. A batch that was being written when the process ended is cut off, and so is all
from a damaged one on.
"""

from __future__ import annotations

import fcntl
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from zlib import crc32

from flour.data.arrow_reader import Arrow, library
from runtime.errors import OutputInUse

_HEAD = struct.Struct("<QI")


class Journal:
    """The batches of answers so far. Used as a context: left without an error, it is removed."""

    def __init__(self, path: Path, task: Mapping[str, Any]) -> None:
        self._path = path
        self._first = json.dumps(task, sort_keys=True).encode() + b"\n"
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise OutputInUse(
                "another process is writing this output",
                where=path.name,
                hint="wait for it, or choose another --output",
            ) from None
        except OSError:
            pass  # a file system without locks
        self._file.seek(0)
        if self._file.readline() != self._first:
            self._file.truncate(0)
            self._file.write(self._first)
            self._file.flush()

    def batches(self) -> Iterator[Arrow]:
        """The batches of an earlier run; afterwards more can be appended."""
        self._file.seek(len(self._first))
        whole = self._file.tell()
        while (found := self._next()) is not None:
            whole = self._file.tell()
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

    def close(self) -> None:
        """Leave what is there for the next run."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """An answer that was refused will be refused again; after an interruption we go on."""
        if kind is None or issubclass(kind, Exception):
            self._path.unlink(missing_ok=True)
        self.close()
