"""Lines of JSON in files that grow, and on standard input and output.

The place of a group in each file of a folder is in `.GROUP.positions` there: what was written and
not noted when a process is killed is answered again. Files keep their names, and grow; one that has
become shorter, is another file, or has other bytes was written anew. A last line without an end is
answered if it is whole JSON.
"""

from __future__ import annotations

import base64
import codecs
import io
import json
import math
import os
import select
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from objectstore import system
from objectstore.atomic import write_file
from runtime.bulk.compressed import compression
from runtime.bulk.files import parts_of, reads
from runtime.streams.messages import (
    BadStream,
    MessageSink,
    MessageSource,
    StreamLost,
    StreamMessage,
    log,
)

_CHUNK = 1 << 20
#: Seconds between looks at files.
_LOOK = 0.02
#: Seconds after which a file that does not grow is said to be stuck.
_STUCK_SECONDS = 5.0
#: Bytes at the beginning and before a place by which a file is known again.
_MARKED = 64
#: Bytes of the name of a group, with which a file is named.
_GROUP_BYTES = 200


class _FilePlace(NamedTuple):
    """A place in a file, and by what the file is known again; of former versions, a number."""

    at: int = 0
    inode: int = 0
    mark: str = ""

    @classmethod
    def of(cls, file: BinaryIO, at: int) -> _FilePlace:
        """The place behind the first bytes of a file."""
        marked = min(at, _MARKED)
        file.seek(0)
        first = file.read(marked)
        file.seek(at - marked)
        mark = blake2b(first + file.read(marked), digest_size=8).hexdigest()
        return cls(at, os.fstat(file.fileno()).st_ino, mark)


class LineSource(MessageSource):
    """The lines of standard input, until it ends; none comes twice."""

    name = "standard input"

    def __init__(self) -> None:
        self._file, self._lines, self._rest = sys.stdin.buffer.fileno(), list[bytes](), b""
        self._number, self._ended = 0, False

    def poll(self, limit: int, seconds: float) -> list[StreamMessage] | None:
        """The next lines."""
        if not self._lines and not self._ended:
            if not select.select([self._file], [], [], seconds)[0]:
                return []
            data = os.read(self._file, _CHUNK)
            self._ended = not data
            *self._lines, self._rest = (self._rest + data).split(b"\n")
            if self._ended and self._rest:
                self._lines.append(self._rest)
        if not self._lines:
            return None if self._ended else []
        some, self._lines = self._lines[:limit], self._lines[limit:]
        first, self._number = self._number + 1, self._number + len(some)
        return [
            StreamMessage(line, None, b"%d" % number)
            for number, line in enumerate(some, first)
            if line.strip()
        ]

    def acknowledge(self, taken: Sequence[StreamMessage]) -> None:
        """Nothing is kept: a pipe is read once."""

    def stop(self) -> None:
        """Read nothing more."""
        self._ended = True


class FileLines(MessageSource):
    """The lines of files, in the order of their names, for one process of a group."""

    def __init__(self, path: str, group: str, start: str) -> None:
        if start not in {"", "first", "last"}:
            hint = "first, or last"
            raise BadStream("files have no such start", where=path, found=start[:40], hint=hint)
        if Path(group).name != group or "\0" in group or len(os.fsencode(group)) > _GROUP_BYTES:
            what = "the place of a group is in a file of its name"
            hint = f"up to {_GROUP_BYTES} letters, digits and -"
            raise BadStream(what, where=path, found=repr(group)[:40], hint=hint)
        self.name, self._path, self._start, self._stopped = path, path, start, False
        #: By file that cannot be read to its end: its size, and since when.
        self._stuck: dict[Path, tuple[int, float]] = {}
        #: By file in which nothing is to be read: its inode, size and time, and why.
        self._idle: dict[Path, tuple[tuple[int, int, int], str]] = {}
        folder = Path(path) if Path(path).is_dir() else Path(path).parent
        self._journal = folder / f".{group}.positions"
        self._group, self._waits = group, False
        self._lock: BinaryIO | None = None

    def _open(self) -> None:
        """Lock the place of the group, and read it."""
        self._lock = self._journal.with_suffix(".lock").open("wb")
        try:
            system.lock(self._lock, wait=False)
        except BlockingIOError:
            self.close()
            what = "another process reads for this group"
            hint = "one process reads files; another --group answers all of them once more"
            raise StreamLost(what, where=self.name, hint=hint) from None
        self._read: dict[str, _FilePlace] = {}
        self._idle.clear()
        with suppress(FileNotFoundError, ValueError):  # after a loss of power it may be empty
            for name, each in json.loads(self._journal.read_bytes()).items():
                self._read[name] = _FilePlace(*each) if isinstance(each, list) else _FilePlace(each)
        if self._start and self._read:
            self.say_begun(self._group)
        elif self._start == "last":
            for part in parts_of(self._path):
                with part.path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    self._read[str(part.path)] = _FilePlace.of(file, size)
            self.acknowledge(())
        self._start = ""

    def poll(self, limit: int, seconds: float) -> list[StreamMessage] | None:
        """The next whole lines of one file."""
        if self._lock is None:
            self._open()
        end = time.monotonic() + seconds
        while not self._stopped:
            try:
                for part in parts_of(self._path):
                    if found := self._lines(part.path, limit):
                        return found
            except FileNotFoundError:
                if not self._waits:
                    log.warning("%s: no such file yet; waiting for it", self.name)
                self._waits = True
            if time.monotonic() >= end:
                return []
            time.sleep(min(_LOOK, seconds))
        return None

    def reads(self, sink: MessageSink) -> bool:
        """True for a file among these."""
        return (
            isinstance(sink, LineSink) and sink.name != "-" and reads(self._path, Path(sink.name))
        )

    def _say_stuck(self, path: Path, size: int, why: str) -> None:
        """Say once why a file of this size is not read to its end, unless it grows meanwhile."""
        known, since = self._stuck.get(path, (-1, 0.0))
        if size != known:
            self._stuck[path] = size, time.monotonic()
        elif time.monotonic() >= since + _STUCK_SECONDS:
            self._stuck[path] = size, math.inf
            log.warning("%s: %s", path, why)

    def _lines(self, path: Path, limit: int) -> list[StreamMessage]:
        status = path.stat()
        now = status.st_ino, status.st_size, status.st_mtime_ns
        known, why = self._idle.get(path, (None, ""))
        if known != now:
            before = self._read.get(str(path))
            found, why = self._new_lines(path, limit)
            if found:
                return found
            if self._read.get(str(path)) == before:  # and not behind empty lines
                self._idle[path] = now, why
        if why:
            self._say_stuck(path, status.st_size, why)
        return []

    def _new_lines(self, path: Path, limit: int) -> tuple[list[StreamMessage], str]:
        """Whole lines behind the place in a file, and why it is not read to its end."""
        place, found, why = self._read.get(str(path), _FilePlace()), list[StreamMessage](), ""
        if compression(path):
            return found, "compressed files are not read"
        with path.open("rb") as file:
            size, at = os.fstat(file.fileno()).st_size, place.at
            if size < at or (at and place.mark and _FilePlace.of(file, at) != place):
                log.warning("%s was written anew: it is read from its beginning", path)
                at = 0
            file.seek(at)
            for line in islice(file, limit):
                if not line.endswith(b"\n") and not _is_whole(line):  # it may still be written
                    why = "its last line has no end, and waits for it"
                    break
                at += len(line)
                where = b"%s:%d" % (os.fsencode(path), at)
                if not line.isspace():
                    text = line.removesuffix(b"\n").removeprefix(codecs.BOM_UTF8)
                    found.append(StreamMessage(text, None, where))
            self._read[str(path)] = _FilePlace.of(file, at)
        return found, why

    def acknowledge(self, taken: Sequence[StreamMessage]) -> None:
        """Note how far each file was read: all that was polled is settled."""
        write_file(self._journal, [json.dumps(self._read).encode()], durable=False)

    def stop(self) -> None:
        """Read nothing more."""
        self._stopped = True

    def close(self) -> None:
        """Let others read for the group."""
        if self._lock is not None:
            self._lock.close()
        self._lock = None


class LineSink(MessageSink):
    """Appends lines to a file, or to standard output; refused messages with their reason.

    An answer that is an object has `of`, the place of what it answers, in a file.
    """

    def __init__(self, path: str) -> None:
        self.name = self._path = path
        place = Path(path) if Path(path).exists() else Path(path).absolute().parent
        if path not in {"-", os.devnull} and Path(path).exists() and not Path(path).is_file():
            found = "a folder" if place.is_dir() else "a pipe or a device"
            hint = "the path of a file, or - for standard output"
            raise BadStream("this is no file to write to", where=path, found=found, hint=hint)
        if path != "-" and not os.access(place, os.W_OK):
            raise BadStream("nothing can be written here", where=path)
        self._file: BinaryIO | io.FileIO | None = None

    def write(self, messages: Sequence[StreamMessage]) -> None:
        """Append all, and hand them to the system."""
        if self._file is None:
            self._file = sys.stdout.buffer if self._path == "-" else _opened(self._path)
        named = self._path != "-"
        rest = memoryview(b"".join(b"%s\n" % _line(each, named=named) for each in messages))
        while rest:  # nothing stays in a buffer, to be written after an error
            rest = rest[self._file.write(rest) :]
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None and self._path != "-":
            self._file.close()
        self._file = None


def _is_whole(line: bytes) -> bool:
    """True if nothing can follow in this line: an object, an array or a text as JSON."""
    with suppress(ValueError, RecursionError):
        return line.rstrip()[-1:] in {b"}", b"]", b'"'} and json.loads(line) is not None
    return False


def _opened(path: str) -> io.FileIO:
    """A file to append to; a line that a killed process has left unfinished ends here."""
    file = Path(path).open("a+b", buffering=0)  # noqa: SIM115 (the sink closes it)
    if end := file.seek(0, os.SEEK_END):
        file.seek(end - 1)
        file.write(b"" if file.read(1) == b"\n" else b"\n")
    return file


def _line(message: StreamMessage, *, named: bool) -> bytes:
    """The line of a message, `named` by what it answers; what is no text is in base64."""
    value, of = message.value or b"", message.position.decode(errors="replace")
    if not message.reason:
        if not named or value[:1] != b"{" or b'"of":' in value:
            return value
        return b'%b,"of":%b}' % (value[:-1], json.dumps(of).encode())
    facts = {"reason": message.reason, "of": of}
    try:
        facts["message"] = value.decode()
    except UnicodeDecodeError:
        facts["base64"] = base64.b64encode(value).decode()
    return json.dumps(facts).encode()


def SOURCE(url: str, group: str, _consumer: str, start: str) -> MessageSource:  # noqa: N802 (a class elsewhere)
    """The source of a path; of standard input for `-`."""
    return LineSource() if url == "-" else FileLines(url, group, start)


SINK = LineSink
