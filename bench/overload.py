"""Twice the load that a server can take, over HTTP: are its answers still good, and in time?

    python -m bench overload

Blocks of 400 rows by 20 as JSON. The most that the server answers is what eight clients get that
ask one after the other; then an open loop offers twice of that, with a deadline of 300 ms in each
request, and without one. A good answer comes within its deadline, or within a second.

Both are measured in turns, as the speed of a shared machine changes within seconds: each turn of
overload is compared with what the server answered just before it, and the goals are about the
median of the turns. The server has one processor of its own and the clients have the others, in all
turns, so the load takes nothing from the server that the comparison does not take.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np

from bench.goal import Goal, printed
from bench.machine import ROOT
from bench.open_loop import Outcome

QUESTION = "Good answers at twice the load, and how long clients wait for them"
ROWS, WIDTH = 400, 20
#: Milliseconds; 0 sends none.
DEADLINES = (300, 0)
#: How often each is measured.
TURNS = 5
#: The limit of a good answer where there is no deadline, in seconds.
USUAL = 1.0
#: Of the most that the server answers, so much has to be left at twice the load.
SHARE = 0.95


@dataclass(frozen=True)
class Turn:
    """The most that the server answered, and what came of twice of that just afterwards."""

    most: float
    outcome: Outcome
    limit: float
    """Seconds within which an answer is good."""
    used: tuple[float, float] = (1.0, 1.0)
    """The server's processor time for a good answer, in seconds: before, and at twice the load."""

    @property
    def share(self) -> float:
        """Good answers of the most."""
        return self.outcome.rate(self.limit) / self.most

    @property
    def yielded(self) -> float:
        """Good answers for the processor time that they took, of what it was before.

        Other work on the machine takes processor time from one part of a turn and not from the
        other. This share does not show that, nor a server that refuses and does nothing.
        """
        before, now = self.used
        return before / now if now else 0.0


def run(seconds: float) -> int:
    """Measure, and print the goals; the exit status, 1 where one is missed."""
    with tempfile.TemporaryDirectory() as folder, serving() as server:
        body = Path(folder) / "body.json"
        body.write_bytes(block())
        offered(server.port, body, 0.0, seconds)  # warms up
        turns: dict[float, list[Turn]] = {deadline: [] for deadline in DEADLINES}
        for _ in range(TURNS):
            for deadline, done in turns.items():
                done.append(turn(server, body, seconds, deadline))
        return printed(
            goal for deadline, done in turns.items() for goal in goals_of(done, deadline)
        )


def turn(server: Server, body: Path, seconds: float, deadline: float) -> Turn:
    """One turn of what the server can do, and of twice of that."""
    start = server.used()
    peak = offered(server.port, body, 0.0, seconds)
    middle = server.used()
    most = peak.rate(USUAL)
    outcome = offered(server.port, body, 2 * most, seconds, deadline)
    limit = deadline / 1e3 or USUAL
    good = peak.rate(USUAL) * seconds, outcome.rate(limit) * seconds
    used = (middle - start) / max(1.0, good[0]), (server.used() - middle) / max(1.0, good[1])
    return Turn(most, outcome, limit, used)


def goals_of(turns: Sequence[Turn], deadline: float) -> list[Goal]:
    """The goals of the turns with one deadline."""
    name = f"deadline {deadline:g} ms" if deadline else "no deadline"
    for each in turns:
        print(
            f"{name}: at most {each.most:.0f} answers a second, at twice the load "
            f"{each.share:.2f} of them are good, {each.yielded:.2f} by processor time; "
            f"{each.outcome.statuses}, sent up to {each.outcome.late:.3f} s late"
        )
    waits = [each.outcome.percentile(0.99) for each in turns]
    return [
        Goal(f"{name}, good answers of the most", median(each.share for each in turns), SHARE),
        Goal(f"{name}, the same by processor time", median(each.yielded for each in turns), SHARE),
        Goal(f"{name}, p99 of answers in s", median(waits), turns[0].limit, at_most=True),
    ]


def block() -> bytes:
    """The body of each request."""
    rows = np.random.default_rng(0).normal(size=(ROWS, WIDTH))
    tensor = {
        "name": "x",
        "datatype": "FP64",
        "shape": [ROWS, WIDTH],
        "data": rows.ravel().tolist(),
    }
    return json.dumps({"inputs": [tensor]}).encode()


def offered(port: int, body: Path, rate: float, seconds: float, deadline: float = 0.0) -> Outcome:
    """What came of load from another process."""
    arguments = [str(port), "/v2/models/block/infer", str(body), str(rate), str(seconds)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.open_loop", *arguments, str(deadline)],
        cwd=ROOT,
        preexec_fn=partial(on_processors, slice(1, None)),  # the server has the first one
        capture_output=True,
        check=True,
        timeout=seconds + 60,
    )
    return Outcome(**json.loads(done.stdout))


@dataclass(frozen=True)
class Server:
    """A server in a process of its own."""

    port: int
    process: int

    def used(self) -> float:
        """The processor time that it has used, in seconds; 0 where the system does not tell."""
        if sys.platform != "linux":
            return 0.0
        return time.clock_gettime(~self.process << 3 | 2)  # the clock of another process


@contextmanager
def serving() -> Iterator[Server]:
    """A server in a process of its own, on a processor of its own if there are two."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen([sys.executable, "-m", "bench.overload", str(port)], cwd=ROOT)
    try:
        end = time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield Server(port, process.pid)
    finally:
        process.terminate()
        process.wait()


def on_processors(which: slice) -> None:
    """Run this process on some of its processors only, if it has two at least."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[which])


def main() -> None:
    """Serve one linear model, as `pretzel serve` would."""
    import flour
    from runtime import Runtime
    from runtime.http import Server, ServerSettings
    from runtime.http.wire.loop_fairness import lock_shared

    on_processors(slice(1))
    flow = flour.vector("x", WIDTH).linear([[0.5] * WIDTH], [0.1]).sigmoid().named("risk")
    with Runtime(executors=1) as runtime, lock_shared():
        runtime.register("block", flow)
        Server(runtime, ServerSettings(port=int(sys.argv[1]))).serve_forever()


if __name__ == "__main__":
    main()
