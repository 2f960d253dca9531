"""A served folder with several workers, as a process of its own, and clients that keep asking."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from tests.house import started, until

ROW = [0.0, 0.0, 0.0, 0.0]
#: Half of what a server that ends gives clients that have been answered, and new ones.
QUIET, FIRST = 0.1, 0.5


class Served:
    """A running `pretzel serve DIR --workers N`."""

    def __init__(
        self, folder: Path, workers: int, *more: str, before: Sequence[str] = (), **environment: str
    ) -> None:
        command = [*before, sys.executable, "-m", "runtime", "serve", str(folder)]
        command += ["--port", "0", "--json", "--workers", str(workers), *more]
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **environment}
        self.process = started(*command, env=environment)
        self.events: list[dict[str, Any]] = []
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(60)
            self._reader.join(60)
            raise AssertionError("\n".join(self.said))
        self.url: str = json.loads(line)["url"]
        self.port = urlsplit(self.url).port or 0
        if workers > 1:  # it is said on another stream, which may be read later
            until(lambda: len(self.workers()) == workers, "not all workers are ready")

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            if line.startswith('{"kind"'):
                self.events.append(json.loads(line))

    def ask(self, path: str, body: object = None, wait: float = 60.0) -> tuple[int, Any]:
        """One request on a new connection: the status, and the body."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(f"{self.url}{path}", data, timeout=wait) as response:
                return response.status, json.load(response)
        except HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    def workers(self) -> dict[int, int]:
        """The processes that were ready last, by the number of the worker."""
        return {each["worker"]: each["process"] for each in self.of("ready")}

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in list(self.events) if each["kind"] == kind]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit code, when everything that it said was read."""
        self.process.send_signal(number)
        try:
            code = self.process.wait(90)
        except subprocess.TimeoutExpired:
            self._say_where()
            raise
        self._reader.join(60)
        return code

    def _say_where(self) -> None:
        """It does not end: what each thread of each process does goes into the report."""
        for process in (*self.workers().values(), self.process.pid):
            if alive(process):
                os.kill(process, signal.SIGABRT)
        self.process.wait(60)
        self._reader.join(60)
        sys.stderr.write("\n".join(self.said))


@contextmanager
def serving(
    folder: Path, workers: int, *more: str, before: Sequence[str] = (), **environment: str
) -> Iterator[Served]:
    """It runs as long as this lasts; `before` is a command that starts commands."""
    served = Served(folder, workers, *more, before=before, **environment)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.stop()
        workers_of_it = [each["process"] for each in served.of("started")]
        until(lambda: not any(map(alive, workers_of_it)), "a worker is left behind")
        for pipe in (served.process.stdout, served.process.stderr):
            assert pipe is not None
            pipe.close()


def alive(process: int) -> bool:
    try:
        found = Path(f"/proc/{process}/stat").read_text("utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return "Z" not in found.rsplit(")", 1)[1][:3]


class Askers:
    """Clients on kept connections, each asking one thing again and again."""

    def __init__(self, port: int, count: int, path: str, *, fresh: bool = False) -> None:
        self._port, self._path, self._fresh = port, path, fresh
        self.answers: list[tuple[float, int, Any]] = []
        #: Connections that were lost with a request on them: some that had been answered before,
        #: and some that had not.
        self.lost: list[str] = []
        self.untaken: list[str] = []
        #: The same, where this machine kept the client from asking in time: a server that ends may
        #: close a connection on which nothing was said for so long.
        self.late: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(count)]

    def __enter__(self) -> Askers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self) -> None:
        body = json.dumps(ROW)
        while not self._ended.is_set():
            connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
            try:
                connection.connect()
            except OSError:  # nobody listens any more
                self._ended.wait(0.01)
                continue
            answered, before, sent = 0, time.monotonic(), 0.0
            try:
                while not self._ended.is_set():
                    before, sent = sent or before, 0.0
                    connection.request("POST", self._path, body)
                    sent = time.monotonic()
                    response = connection.getresponse()
                    found = json.loads(response.read())
                    self.answers.append((time.monotonic(), response.status, found))
                    answered += 1
                    if self._fresh or response.will_close:
                        break
                    time.sleep(0.002)
            except (OSError, HTTPException) as problem:
                late = (sent or time.monotonic()) - before > (QUIET if answered else FIRST)
                known = self.lost if answered else self.untaken
                (self.late if late else known).append(type(problem).__name__)
            finally:
                connection.close()
