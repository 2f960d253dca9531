"""Imports models in a process of their own, so that no file can bring down the server.

A file may make an importer crash in a library, run out of memory or loop. The import process is
started when there is a model to import, handles one after the other, and ends after some idle time,
which frees the libraries it has loaded. A crash or a timeout becomes the reason why that model is
not served.
"""

from __future__ import annotations

import json
import select
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any, BinaryIO, cast

from objectstore import system
from runtime.errors import BadRegistration
from runtime.repository import import_process
from runtime.repository.errors import Crashed, NoRoom, NotSettled, RepositoryError
from runtime.repository.files import Folder, shown
from runtime.repository.listing import FolderModel
from runtime.repository.preparing import Trust
from runtime.repository.staging import Staging

OnLine = Callable[[str], object]
"""Called with each line that the import process prints, on a thread of its own."""
#: Time limit for one model.
LIMIT_SECONDS = 600.0
#: An idle process ends after this time.
IDLE_SECONDS = 20.0

_CLASSES = {"NoRoom": NoRoom, "NotSettled": NotSettled, "BadRegistration": BadRegistration}


@dataclass(frozen=True, slots=True)
class Orders:
    """The settings of the process, passed at its start."""

    root: str
    staging: str
    max_bytes: int
    trust: Trust
    exact: bool
    trust_code: bool
    idle_seconds: float


class IsolatedImporter:
    """Imports models in another process. One thread at a time may call `prepare`; any may close."""

    def __init__(
        self,
        folder: Folder,
        staging: Staging,
        trust: Trust,
        *,
        exact: bool,
        on_line: OnLine | None = None,
    ) -> None:
        self._on_line = on_line  # None: its output goes to this process' stderr
        self._orders = Orders(
            str(folder.root),
            str(staging.directory),
            folder.max_bytes,
            trust,
            exact,
            staging.trust_code,
            IDLE_SECONDS,
        )
        self._staging, self._limit = staging, LIMIT_SECONDS
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._lock = threading.Lock()  # of `_process`, between `prepare` and `close`
        self._asking = self._closed = False

    def prepare(self, model: FolderModel, current: Path | None) -> Path:
        """The file of the model's plan, verified."""
        facts = {
            "name": model.name,
            "version": model.version,
            "layout": model.layout,
            "path": str(model.path),
            "form": model.form,
            "promise": {"kind": type(model.promise).__name__, **asdict(model.promise)},
            "rows": None if model.rows is None else str(model.rows),
        }
        request = {"model": facts, "known": None if current is None else current.name}
        asked = json.dumps(request).encode() + b"\n"
        answer = self._ask(asked, model)
        if answer is None:  # it had just ended
            answer = self._ask(asked, model)
        if answer is None:
            raise _crashed(model, "ended without an answer")
        if "staged" in answer:
            return self._staging.directory / Path(answer["staged"]).name
        kind = _CLASSES.get(answer.pop("kind", ""), RepositoryError)
        raise kind(answer.pop("what"), **answer)

    def _ask(self, asked: bytes, model: FolderModel) -> dict[str, Any] | None:
        """The answer to a request; None if the process had ended before, or without an error."""
        process, line, sent = self._running_process(), b"", False
        try:
            with suppress(BrokenPipeError):
                sent = bool(cast("BinaryIO", process.stdin).write(asked))
                line = _line(cast("BinaryIO", process.stdout), self._limit)
        finally:
            if not line.endswith(b"\n"):  # it has ended, or must be ended
                process.kill()
                process.wait()
                if self._listener is not None:  # its last lines are reported before the reason
                    self._listener.join(1.0)
            with self._lock:
                self._asking = False
                if self._closed:
                    self._close_pipes()
        if line.endswith(b"\n"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        if self._closed:
            raise _crashed(model, "the server ends")
        if process.returncode == 0 or not sent:
            return None
        raise _crashed(
            model, _exit_reason(process.returncode, late=line == _LATE, limit=self._limit)
        )

    def _running_process(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise RepositoryError("no model is imported any more: the server is shutting down")
            if self._process is None or self._process.poll() is not None:
                self._close_pipes()
                self._process = self._start()
            self._asking = True
            return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        process = import_process.start(heard=self._on_line is not None)
        orders = json.dumps(asdict(self._orders)).encode() + b"\n"
        with suppress(BrokenPipeError):  # it has ended, which the first request finds out
            cast("BinaryIO", process.stdin).write(orders)
        # The system keeps a process that has ended until it was waited for.
        threading.Thread(target=process.wait, name="pretzel-importer-end", daemon=True).start()
        if self._on_line is not None:
            heard = BufferedReader(cast("FileIO", process.stderr)), self._on_line
            self._listener = threading.Thread(target=_forward_lines, args=heard, daemon=True)
            self._listener.start()
        return process

    def _close_pipes(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            cast("BinaryIO", process.stdin).close()
            cast("BinaryIO", process.stdout).close()

    def close(self) -> None:
        """End the process, also in the middle of an import."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()
            if not self._asking:  # otherwise `prepare` closes the pipes
                self._close_pipes()

    def __del__(self) -> None:
        """End the process if `close` was not called."""
        process = getattr(self, "_process", None)
        if process is not None:
            process.kill()
            process.wait()
            self._close_pipes()


def _forward_lines(stream: BinaryIO, on_line: OnLine) -> None:
    """Pass on the lines that the process prints, until it has ended."""
    with stream, suppress(OSError):
        while line := stream.readline(_LONGEST):
            on_line(line.decode("utf-8", "replace").removesuffix("\n"))


_LATE = b"late"
_LONGEST = 1 << 16


def _line(stream: BinaryIO, seconds: float) -> bytes:
    """The bytes up to the end of a line; fewer if the other side ends, `_LATE` after the limit."""
    end, received = time.monotonic() + seconds, b""
    poll = select.poll()
    poll.register(stream, select.POLLIN | select.POLLHUP)
    while not received.endswith(b"\n"):
        if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
            return _LATE
        piece = stream.read(1 << 16)
        if not piece:
            return received.rstrip(b"\n")
        received += piece
    return received


def _exit_reason(code: int, *, late: bool, limit: float) -> str:
    if late:
        return f"not done after {limit:g} s"
    return f"code {code}" if code > 0 else system.signal_name(-code)


def _crashed(model: FolderModel, found: str) -> Crashed:
    return Crashed(
        "the process that imported this model has ended",
        where=shown(model.path),
        found=found,
        hint="see standard error; SIGKILL often means that memory ran out",
    )
