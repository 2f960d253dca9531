"""The access log: a line of JSON for each request.

    {"time": "2026-01-31T12:00:00.125Z", "peer": "10.0.0.7", "method": "POST",
     "path": "/v2/models/fraud/infer", "status": 200, "bytes": 131, "seconds": 0.000087,
     "model": "fraud", "version": "3"}

`client` is the client's name, if it sent a token; `id` is also in the answer's `X-Request-Id`;
unknown fields are left out. Bodies, queries and tokens are never written. The event loop only
appends figures to a list; a thread writes them.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from time import time
from typing import IO

import msgspec

from flour.core.errors import ParameterError
from objectstore import system
from runtime.http.guard.guards import Sender
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.problems import log

#: Seconds between two writes.
EVERY = 0.2
#: Time for the last lines to be written.
_END_SECONDS = 5.0
#: Most lines that wait to be written; further ones are dropped, and their number is logged.
MOST = 100_000
#: Characters to which paths and names from clients are cut.
LONGEST = 500
STANDARD_ERROR = "-"


class LogLine(msgspec.Struct, omit_defaults=True):
    """The fields of a line."""

    time: str
    peer: str
    method: str
    path: str
    status: int
    bytes: int
    seconds: float
    client: str = ""
    model: str = ""
    version: str = ""
    id: str = ""


class AccessLog:
    """Writes a line for each failed request, and for a share of the successful ones."""

    name = "access log"

    def __init__(
        self,
        target: str,
        share: float = 1.0,
        *,
        client: Callable[[Request], Sender | None] = lambda _: None,
    ) -> None:
        """Write to a file, which is appended to, or to standard error ("-").

        A file that is moved away is created again, so logs may be rotated. `client` returns the
        sender of a request.
        """
        self._target, self._share, self._client = target, share, client
        self._due = 0.0
        self._lines: deque[tuple[float, LogLine]] = deque()
        self._lost = 0
        self._broken = False
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._stream = open_target(target, self.name)
        name = f"pretzel-{self.name.replace(' ', '-')}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    # --- on the event loop's thread ----------------------------------------------------------

    def __call__(self, request: Request, response: Response, seconds: float) -> None:
        """Record a request, if it failed or is in the share."""
        if response.status < 400:
            self._due += self._share
            if self._due < 1.0:
                return
            self._due -= 1.0
        if len(self._lines) >= MOST:
            self._lost += 1
            return
        self._lines.append((time(), self._line(request, response, seconds)))

    def _line(self, request: Request, response: Response, seconds: float) -> LogLine:
        front, who = request.front, self._client(request)
        return LogLine(
            time="",
            peer=request.peer,
            method=request.method,
            path=request.path[:LONGEST],
            status=response.status,
            bytes=0 if request.method == "HEAD" else len(response.body),
            seconds=round(seconds, 6),
            client=who.name if who is not None and who.known else "",
            model=front.version.name if front is not None else "",
            version=front.version.version if front is not None else "",
            id=request.id,
        )

    # --- on a thread of its own --------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            self.flush()

    def flush(self) -> None:
        """Write the collected lines; from any thread."""
        with self._writing:
            lines = [self._encoded(*self._lines.popleft()) for _ in range(len(self._lines))]
            lost, self._lost = self._lost, 0
            if lost:
                log.warning("the %s has lost %d lines: too many came at once", self.name, lost)
            if lines:
                self._write(b"".join(lines))

    def _encoded(self, when: float, line: LogLine) -> bytes:
        moment = datetime.fromtimestamp(when, timezone.utc).isoformat(timespec="milliseconds")
        line.time = moment.replace("+00:00", "Z")
        return msgspec.json.encode(line) + b"\n"

    def _write(self, data: bytes) -> None:
        try:
            if _is_replaced(self._target, self._stream):
                self._stream.close()
                self._stream = open_target(self._target, self.name)
            while data:
                data = data[self._stream.write(data) :]
            self._stream.flush()
        except (OSError, ValueError, ParameterError) as problem:
            if not self._broken:  # once, not five times a second
                log.error("the %s cannot be written: %s", self.name, problem)
            self._broken = True
        else:
            self._broken = False

    def close(self) -> None:
        """Write the remaining lines, and end the thread."""
        self._ended.set()
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():  # as nobody reads what it writes to
            log.error("the %s is given up: %s takes no more", self.name, self._target)
            return
        self.flush()
        if self._target != STANDARD_ERROR:
            self._stream.close()


def open_target(target: str, name: str = AccessLog.name) -> IO[bytes]:
    """The stream for the lines: a file that is appended to, or standard error."""
    if target == STANDARD_ERROR:
        return sys.stderr.buffer
    try:
        # Unbuffered and appending: lines of several processes do not mix.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | system.READ  # a pipe without a reader
        number = os.open(target, flags, 0o666)
        os.set_blocking(number, True)
        return os.fdopen(number, "ab", buffering=0)
    except OSError as problem:
        raise ParameterError(
            f"the {name} cannot be written",
            where=target,
            found=problem.strerror or str(problem),
            hint='a file that can be appended to, or "-" for standard error',
        ) from problem


def _is_replaced(target: str, stream: IO[bytes]) -> bool:
    """True if another file, or none, has the name now."""
    if target == STANDARD_ERROR:
        return False
    try:
        there, ours = Path(target).stat(), os.fstat(stream.fileno())
    except FileNotFoundError:
        return True
    return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)
