"""Messages a second from Redis through a small plan and back, beside consumers without a model.

    python -m bench streams

Redis has a core of its own where there are two; consumers take turns on the other one, over the
same messages. The bare consumer reads batches over the same connection, writes an answer that is
always the same, and acknowledges, all in one transaction a batch; it is the fastest that we know.
Rates are the best of short turns, as others use the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.experiments.stream_peers import beside
from bench.goal import Goal
from bench.ray_nodes import free_port

QUESTION = "streams: messages a second from Redis through a small plan, beside bare consumers"
_MESSAGES, _BATCH, _ROUNDS, _SINGLE = 10_000, 500, 25, 500
_COLUMNS = ("age", "amount", "hours", "debt")
_ANSWER = b'{"label":"no","probabilities":{"no":0.9270143229813,"yes":0.0729856770187}}'


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    with tempfile.TemporaryDirectory() as folder, _redis(Path(folder)) as url:
        yield from _throughput(url)


@contextmanager
def _redis(place: Path) -> Iterator[str]:
    """A server in memory, on the last core."""
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("redis-server is not installed")
    port, cores = free_port(), sorted(os.sched_getaffinity(0))
    words = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(place)]
    process = subprocess.Popen([program, *words], stdout=subprocess.DEVNULL)
    try:
        os.sched_setaffinity(process.pid, cores[-1:])
        os.sched_setaffinity(0, cores[:1])
        yield f"redis://127.0.0.1:{port}"
    finally:
        os.sched_setaffinity(0, cores)
        process.kill()
        process.wait(60)


def _model() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = _rows(500)
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(
        rows, np.where(rows[:, 0] > 0, "yes", "no")
    )


def _rows(count: int) -> Any:
    return np.random.default_rng(0).normal(size=(count, len(_COLUMNS))).round(4)


class _World:
    """A stream of messages, and those who read it."""

    def __init__(self, url: str) -> None:
        import hiredis

        self.url, self.model = url, _model()
        self._pack, self._reader = hiredis.pack_command, hiredis.Reader()
        port = int(url.rpartition(":")[2])
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.values = [json.dumps(row.tolist()).encode() for row in _rows(_BATCH)]

    def send(self, *commands: tuple[Any, ...]) -> None:
        """Send commands, all at once."""
        self._socket.sendall(b"".join(map(self._pack, commands)))

    def reply(self) -> Any:
        """Return the next reply."""
        while (found := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(1 << 16))
        return found

    def call(self, *command: object) -> Any:
        """Return the reply to a command."""
        self.send(command)
        return self.reply()

    def fill(self, count: int) -> None:
        """Begin anew with so many messages, of whom a group has read none."""
        self.call("FLUSHALL")
        self.call("XGROUP", "CREATE", "in", "g", "0", "MKSTREAM")
        for start in range(0, count, _BATCH):
            some = range(start, min(start + _BATCH, count))
            fields = ((b"%d" % at, self.values[at % _BATCH]) for at in some)
            self.send(*[("XADD", "in", "*", "key", key, "value", each) for key, each in fields])
            for _ in some:
                self.reply()

    def _batches(self, size: int) -> Iterator[list[Any]]:
        while found := self.call(
            "XREADGROUP", "GROUP", "g", "c", "COUNT", size, "STREAMS", "in", ">"
        ):
            yield found[0][1]

    def bare(self, count: int) -> None:
        """Answer each batch with what is always the same."""
        for batch in self._batches(_BATCH):
            commands: list[tuple[Any, ...]] = [("MULTI",)]
            for number, fields in batch:
                said = "key", fields[1], "value", _ANSWER, "of", number
                commands.append(("XADD", "out", "*", *said))
            commands += [("XACK", "in", "g", *(number for number, _ in batch)), ("EXEC",)]
            self.send(*commands)
            for _ in commands:
                self.reply()

    def single(self, count: int) -> None:
        """Answer message after message by scikit-learn, as the usual worker does."""
        for ((number, fields),) in self._batches(1):
            found = self.model.predict_proba([json.loads(fields[3])])[0]
            text = json.dumps({"probabilities": found.tolist()})
            self.call("XADD", "out", "*", "key", fields[1], "value", text, "of", number)
            self.call("XACK", "in", "g", number)


def _throughput(url: str) -> Iterator[Goal]:
    import flour
    from runtime import Runtime
    from runtime.streams import Stream, open_sink, open_source

    world = _World(url)
    with Runtime(executors=1) as runtime:
        runtime.register("m", flour.from_sklearn(world.model), background=False)

        def stream(count: int) -> None:
            source = open_source(f"{url}/in", group="g", consumer="c")
            with Stream(runtime, "m", source, open_sink(f"{url}/out"), rows=_BATCH) as made:
                while made.counts.messages < count:
                    made.step()

        bare = best = 0.0
        for _ in range(_ROUNDS):
            bare = max(bare, _rate(world, world.bare, _MESSAGES))
            best = max(best, _rate(world, stream, _MESSAGES))
        single = max(_rate(world, world.single, _SINGLE) for _ in range(3))
    yield Goal("messages/s through a small plan, one core, in batches", best, 100_000)
    yield Goal("of the bare consumer's rate", best / bare, 0.7)
    yield Goal("times a worker that calls scikit-learn for each message", best / single, 20)
    yield Goal("s to work off a burst of 100,000 messages", 1e5 / best, 1.0, at_most=True)
    yield from beside(url, best, world.model, world.values)


def _rate(world: _World, consume: Callable[[int], None], count: int) -> float:
    world.fill(count)
    start = time.perf_counter()
    consume(count)
    seconds = time.perf_counter() - start
    if world.call("XLEN", "out") != count:
        raise AssertionError("each message has one answer")
    return count / seconds
