"""Twice the load that a server can take, over HTTP: are its answers still good, and in time?

    python -m bench overload

Blocks of 400 rows by 20 as JSON. The most that the server answers is what eight clients get that
ask one after the other; then an open loop offers twice of that, with a deadline of 300 ms in each
request, and without one. A good answer comes within its deadline, or within a second.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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


def run(seconds: float) -> int:
    """Measure, and print the goals; the exit status, 1 where one is missed."""
    with tempfile.TemporaryDirectory() as folder, serving() as port:
        body = Path(folder) / "body.json"
        body.write_bytes(block())
        offered(port, body, 0.0, seconds / 2)  # warms up
        most = offered(port, body, 0.0, seconds).rate(USUAL)
        print(f"the most: {most:.0f} answers a second")
        return printed(
            goal
            for deadline in DEADLINES
            for goal in goals_of(offered(port, body, 2 * most, seconds, deadline), most, deadline)
        )


def goals_of(outcome: Outcome, most: float, deadline: float) -> list[Goal]:
    """The goals of one run at twice the load."""
    limit = deadline / 1e3 or USUAL
    name = f"deadline {deadline:g} ms" if deadline else "no deadline"
    print(
        f"{name}: {outcome.statuses}, {outcome.rate(limit):.0f} good answers a second, "
        f"sent up to {outcome.late:.3f} s late"
    )
    return [
        Goal(f"{name}, good answers of the most", outcome.rate(limit) / most, SHARE),
        Goal(f"{name}, p99 of answers in s", outcome.percentile(0.99), limit, at_most=True),
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
