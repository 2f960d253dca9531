"""Twice the load that a server can take, over HTTP: are its answers still good, and in time?

    python -m bench overload

Blocks of 400 rows by 20 as JSON. The most that the server answers is what eight clients get that
ask one after the other; then an open loop offers twice of that, with a deadline of 300 ms in each
request, and without one. A good answer comes within its deadline, or within a second. This is done
in several turns, as a machine is not always equally fast, and the median of the turns counts.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.goal import Goal, printed
from bench.machine import ROOT
from bench.open_loop import Outcome

QUESTION = "Good answers at twice the load, and how long clients wait for them"
ROWS, WIDTH = 400, 20
#: Milliseconds; 0 sends none.
DEADLINES = (300, 0)
#: The limit of a good answer where there is no deadline, in seconds.
USUAL = 1.0
#: Of the most that the server answers, so much has to be left at twice the load.
SHARE = 0.95
TURNS = 3


def run(seconds: float) -> int:
    """Measure, and print the goals; the exit status, 1 where one is missed."""
    with tempfile.TemporaryDirectory() as folder, serving() as port:
        body = Path(folder) / "body.json"
        body.write_bytes(block())
        offered(port, body, 0.0, seconds / 2)  # warms up
        turns = [turn(port, body, seconds) for _ in range(TURNS)]
    return printed(goal for deadline in DEADLINES for goal in goals_of(deadline, turns))


class Turn(NamedTuple):
    """The most that the server answers, and what came of twice as much by deadline."""

    most: float
    twice: Mapping[int, Outcome]


def turn(port: int, body: Path, seconds: float) -> Turn:
    """Measure the most, before and after twice of it is offered, with each deadline."""
    before = offered(port, body, 0.0, seconds / 2).rate(USUAL)
    twice = {each: offered(port, body, 2 * before, seconds, each) for each in DEADLINES}
    after = offered(port, body, 0.0, seconds / 2).rate(USUAL)
    print(f"the most: {before:.0f} answers a second before, {after:.0f} after")
    for deadline, outcome in twice.items():
        print(
            f"{_name(deadline)}: {outcome.statuses}, {outcome.rate(_limit(deadline)):.0f} good "
            f"answers a second, sent up to {outcome.late:.3f} s late"
        )
    return Turn((before + after) / 2, twice)


def goals_of(deadline: int, turns: Sequence[Turn]) -> Iterator[Goal]:
    """The goals of twice the load with one deadline."""
    limit = _limit(deadline)
    shares = [turn.twice[deadline].rate(limit) / turn.most for turn in turns]
    waits = [turn.twice[deadline].percentile(0.99) for turn in turns]
    yield Goal(f"{_name(deadline)}, good answers of the most", float(np.median(shares)), SHARE)
    longest = float(np.median(waits))
    yield Goal(f"{_name(deadline)}, p99 of answers in s", longest, limit, at_most=True)


def _limit(deadline: int) -> float:
    """Seconds after which an answer is not a good one."""
    return deadline / 1e3 or USUAL


def _name(deadline: int) -> str:
    return f"deadline {deadline} ms" if deadline else "no deadline"


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
        capture_output=True,
        check=True,
        timeout=seconds + 60,
    )
    return Outcome(**json.loads(done.stdout))


@contextmanager
def serving() -> Iterator[int]:
    """The port of a server in a process of its own, on a processor of its own if there are two."""
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
        yield port
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Serve one linear model, as `pretzel serve` would."""
    import flour
    from runtime import Runtime
    from runtime.http import Server, ServerSettings
    from runtime.http.loop_fairness import lock_shared

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:  # the load comes from the others
        os.sched_setaffinity(0, cores[:1])
    flow = flour.vector("x", WIDTH).linear([[0.5] * WIDTH], [0.1]).sigmoid().named("risk")
    with Runtime(executors=1) as runtime, lock_shared():
        runtime.register("block", flow)
        Server(runtime, ServerSettings(port=int(sys.argv[1]))).serve_forever()


if __name__ == "__main__":
    main()
