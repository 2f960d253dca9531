"""Questions and answers between two processes, both ways, over one pair of sockets.

A message is its length and a JSON object. A question has a number, which its answer repeats;
answers come in any order. Asking does not wait: it returns a future. When the other process ends,
in any way, the system closes its end, and all open futures fail.
"""

from __future__ import annotations

import json
import logging
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import Any, Protocol

from objectstore import Explained
from runtime.errors import ChannelClosed, WorkersError

log = logging.getLogger("pretzel.workers")

#: Answers a question of a kind: with a value, or with a future of one.
Handler = Callable[[str, Any], Any]
_LENGTH = struct.Struct("!Q")
_LARGEST = 1 << 30


class End(Protocol):
    """One end of a channel, as a worker uses it."""

    def start(self, name: str) -> None:
        """Begin to read and to write."""

    def ask(self, kind: str, body: object = None) -> Future[Any]:
        """Send a question; returns the future of its answer."""


class RemoteError(WorkersError):
    """The other process answered with an error; `kind` is the name of its class."""

    def __init__(self, kind: str, parts: dict[str, Any]) -> None:
        super().__init__(
            str(parts.get("what", "the other process failed")),
            where=parts.get("where"),
            found=parts.get("found"),
            hint=parts.get("hint"),
        )
        self.kind = kind


class Channel:
    """One end of a channel. Two threads read and write, so that callers never wait."""

    def __init__(
        self, connection: socket.socket, handle: Handler, gone: Callable[[], object]
    ) -> None:
        """Take an end over; `handle` and `gone` are called on the reader's thread."""
        self._socket, self._handle, self._gone = connection, handle, gone
        self._numbers = count(1)
        self._open: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._out: SimpleQueue[bytes | None] = SimpleQueue()

    def start(self, name: str) -> None:
        """Begin to read and to write."""
        for task, what in ((self._read, "reads"), (self._write, "writes")):
            threading.Thread(target=task, name=f"pretzel-{name}-{what}", daemon=True).start()

    @property
    def closed(self) -> bool:
        """True if the other process has ended, or closed its end."""
        return self._closed

    def ask(self, kind: str, body: object = None) -> Future[Any]:
        """Send a question; returns the future of its answer."""
        future: Future[Any] = Future()
        with self._lock:
            if self._closed:
                future.set_exception(_gone())
                return future
            number = next(self._numbers)
            self._open[number] = future
        self._send({"ask": kind, "number": number, "body": body})
        return future

    def close(self) -> None:
        """Stop sending and receiving."""
        self._out.put(None)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    # --- writing -----------------------------------------------------------------------------

    def _send(self, message: object) -> None:
        data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        self._out.put(_LENGTH.pack(len(data)) + data)

    def _write(self) -> None:
        while (data := self._out.get()) is not None:
            try:
                self._socket.sendall(data)
            except OSError:  # the reader notices too, and fails all futures
                return

    # --- reading -----------------------------------------------------------------------------

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            while (message := self._next()) is not None:
                self._take(message)
        self._end()

    def _next(self) -> dict[str, Any] | None:
        head = self._exactly(_LENGTH.size)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        data = self._exactly(length) if length <= _LARGEST else None
        message: dict[str, Any] | None = None if data is None else json.loads(data)
        return message

    def _exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                return None
            parts += part
        return bytes(parts)

    def _take(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            self._answer(message)
            return
        with self._lock:
            future = self._open.pop(message["to"], None)
        if future is None:
            return
        if "error" in message:
            future.set_exception(RemoteError(message["kind"], message["error"]))
        else:
            future.set_result(message["answer"])

    def _answer(self, message: dict[str, Any]) -> None:
        number = message["number"]
        try:
            answer = self._handle(message["ask"], message["body"])
        except Exception as problem:  # noqa: BLE001 (it is the asker's answer)
            self._send(_error(number, problem))
            return
        if isinstance(answer, Future):
            answer.add_done_callback(lambda done: self._forward(number, done))
        else:
            self._send({"to": number, "answer": answer})

    def _forward(self, number: int, done: Future[Any]) -> None:
        problem = done.exception()
        if problem is None:
            self._send({"to": number, "answer": done.result()})
        else:
            self._send(_error(number, problem))

    def _end(self) -> None:
        with self._lock:
            self._closed = True
            left = list(self._open.values())
            self._open.clear()
        self._out.put(None)
        with suppress(OSError):
            self._socket.close()
        for future in left:
            future.set_exception(_gone())
        self._gone()


def apart(work: Callable[[], Any]) -> Future[Any]:
    """Work on a thread of its own, as the answer of a channel."""
    done: Future[Any] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as problem:  # noqa: BLE001 (it is the asker's answer)
            done.set_exception(problem)

    threading.Thread(target=run, name="pretzel-apart", daemon=True).start()
    return done


def _gone() -> ChannelClosed:
    return ChannelClosed("the other process has ended")


def _error(number: int, problem: BaseException) -> dict[str, Any]:
    # An error that is passed on from another process keeps its name.
    kind = problem.kind if isinstance(problem, RemoteError) else type(problem).__name__
    if isinstance(problem, Explained):
        parts = {"what": problem.what, "where": problem.where}
        parts |= {"found": problem.found, "hint": problem.hint}
    else:
        log.error("a question of another process failed here", exc_info=problem)
        parts = {"what": "the other process failed", "found": kind}
    return {"to": number, "kind": kind, "error": parts}
