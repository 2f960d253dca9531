"""How fast are answers over HTTP? One row in JSON over persistent connections.

Servers run in processes of their own and take turns, while the others are stopped; the client (wrk,
if it is installed) uses the other core. A bare echo server that reads and writes the same JSON
shows the cost of the client, the sockets and JSON. A server in a network namespace cannot be
stopped as a whole, so its turns come when the others have ended.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from typing import NamedTuple

from bench import client, enclosed, environments
from bench.crew import Absent, environment, log_file
from bench.machine import ROOT
from bench.results import spread
from bench.servers import SERVERS, ServerKind
from bench.session import Session
from bench.workload import Saved, Spec, saved
from bench.wrk import Outcome, race

QUESTION = "One row over HTTP, beside other servers"
MODELS = 16
CONNECTIONS = (1, 16, 256)
_PATIENCE = 60.0


class Entry(NamedTuple):
    """The port of a running server, and its processes."""

    port: int
    process: int | None = None
    """The process group, which is stopped between its turns."""
    before: tuple[str, ...] = ()
    """The prefix of commands that reach it, if it is in a network namespace."""


def run(session: Session) -> None:
    """Measure with linear models, so that the server dominates."""
    workload = saved(Spec("lin", MODELS, 0.1, session.plan.specs[0].seed))
    apart = [name for name, kind in SERVERS.items() if kind.enclosed]
    together = [name for name in SERVERS if name not in apart]
    # Shares of the time that is left.
    for names, shares in ((together, (0.3, 0.5, 0.7)), (apart, (0.4, 0.7, 1.0))):
        with ExitStack() as stack:
            ports: dict[str, Entry] = {}
            for name in names:
                session.progress.step(f"servers: {name} starts")
                try:
                    ports[name] = _ready(name, workload, stack)
                    session.told(name, _versions(name))
                except (Absent, ConnectionError, OSError, KeyError) as problem:
                    session.absent("end_to_end", name, str(problem))
            for connections, share in zip(CONNECTIONS, shares, strict=True):
                _race(session, workload, ports, connections, session.rounds(share))


def _ready(name: str, workload: Saved, stack: ExitStack) -> Entry:
    """A server that was checked and is stopped until its turn; one that fails is ended at once."""
    with ExitStack() as own:
        entry = started(name, SERVERS[name], [str(workload.folder), str(workload.count)], own)
        _check(name, workload, entry)
        stop(entry)
        stack.push(own.pop_all())
    return entry


def stop(entry: Entry) -> None:
    """Stop a server until its turn; it may have ended meanwhile."""
    if entry.process is not None:
        with suppress(ProcessLookupError):
            os.killpg(entry.process, signal.SIGSTOP)


def resume(entry: Entry) -> None:
    """Let a server go on for its turn."""
    if entry.process is not None:
        os.killpg(entry.process, signal.SIGCONT)


def _race(
    session: Session,
    workload: Saved,
    ports: dict[str, Entry],
    connections: int,
    numbers: Iterable[int],
) -> None:
    rows = workload.inputs.data
    rounds: dict[str, list[Outcome]] = defaultdict(list)
    seconds = max(2 * session.plan.seconds, 0.2)
    for _ in numbers:
        for name, entry in list(ports.items()):
            session.progress.step(f"servers, {connections} connections: {name}")
            ask = SERVERS[name].request
            requests = [ask(n % workload.count, rows[n].tolist()) for n in range(64)]
            try:
                resume(entry)
                with suppress(ConnectionError):  # what may have come while it was stopped is late
                    first_answer(entry, requests[0], patience=0.5)
                for time_spent in (seconds / 2, seconds):  # the first is a warm-up
                    outcome = race(entry.port, requests, connections, time_spent, entry.before)
                rounds[name].append(outcome)
            except (ConnectionError, OSError) as problem:
                session.absent("end_to_end", name, f"{connections} connections: {problem}")
                del ports[name]
            finally:  # a failed server must not run beside the others
                stop(entry)
    for name, outcomes in rounds.items():
        where, by = ("end_to_end", "lin", name), outcomes[0].by
        rate = spread([each.rate for each in outcomes])
        session.record(*where, "rate", unit="requests/s", x=connections, note=by, **rate)
        for metric in ("p50", "p99", "p999"):
            values = spread([getattr(each, metric) for each in outcomes])
            session.record(*where, metric, unit="ms", x=connections, note=by, **values)


def started(
    name: str, kind: ServerKind, arguments: list[str], stack: ExitStack, patience: float = _PATIENCE
) -> Entry:
    """Start a server with these arguments and a port, and wait until it listens."""
    python = environments.python(kind.environment)
    if python is None:
        raise Absent(environments.reason(kind.environment))
    port = _free_port()
    before = enclosed.starting() if kind.enclosed else ()
    log = stack.enter_context(log_file(f"server-{name}").open("ab"))
    process = subprocess.Popen(
        [*before, str(python), "-m", f"bench.servers.{name}", *arguments, str(port)],
        stdout=log,
        stderr=log,
        cwd=ROOT,
        env=environment(1, kind.variables),
        start_new_session=True,
    )
    stack.callback(_end, process)
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if process.poll() is not None:
            raise Absent(f"it ended with {process.returncode}; see server-{name}.log")
        if kind.enclosed and enclosed.listens(process.pid, port):
            return Entry(port, before=enclosed.entering(process.pid))
        if not kind.enclosed and _listens(port):
            return Entry(port, process.pid)
        time.sleep(0.05)
    raise Absent(f"it did not listen within {patience:.0f} s")


def _versions(name: str) -> dict[str, str]:
    """The versions of a server's packages in its environment."""
    kind = SERVERS[name]
    python = environments.python(kind.environment)
    text = "import sys; from importlib.metadata import version as v; print(*map(v, sys.argv[1:]))"
    done = subprocess.run(
        [str(python), "-c", text, *kind.packages], capture_output=True, text=True, check=False
    )
    return dict(zip(kind.packages, done.stdout.split(), strict=False))


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server, and with it the processes it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signal.SIGCONT)
            os.killpg(process.pid, number)
            process.wait(5)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _check(name: str, workload: Saved, entry: Entry) -> None:
    """Check that the first answer is scikit-learn's, except for the echo."""
    value = first_answer(entry, SERVERS[name].request(0, workload.inputs.data[0].tolist()))[-1]
    expected = float(workload.pipelines()[0].expected()[0])
    # Some servers answer with the label.
    if name != "echo" and abs(value - expected) > 1e-9 and value != float(expected > 0.5):
        raise Absent(f"it answers {value} where scikit-learn says {expected}")


def first_answer(entry: Entry, request: bytes, patience: float = _PATIENCE / 4) -> list[float]:
    """The numbers of the first output of an answer, as soon as the server gives one."""
    end = time.monotonic() + patience
    while True:
        try:
            if entry.before:
                return enclosed.answer(entry.before, entry.port, request)
            return client.answer(entry.port, request)
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)
