"""Servers under the bench's client: ours answers as scikit-learn does, and all are ended."""

from __future__ import annotations

import gc
import shutil
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from bench import client, environments, results
from bench.clock import Clock
from bench.crew import Absent
from bench.experiments import end_to_end
from bench.report.figures import Figures
from bench.servers import SERVERS
from bench.session import Plan, Session
from bench.workload import Spec
from bench.wrk import Outcome
from tests.bench.test_crew_turns import until


@pytest.mark.apart
@pytest.mark.parametrize("client", ["wrk", "ours"])
def test_ours_and_the_floor(
    client: str, tmp_path: Path, bench_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if client == "ours":
        monkeypatch.setattr(shutil, "which", lambda *_: None)
    elif shutil.which("wrk") is None:
        pytest.skip("wrk is not installed")
    monkeypatch.setenv("PRETZEL_BENCH_CACHE", str(bench_cache))
    monkeypatch.setattr(environments, "PLACE", tmp_path)  # nobody else is there
    monkeypatch.setattr(end_to_end, "MODELS", 2)
    started: list[subprocess.Popen[bytes]] = []
    end = end_to_end._end

    def ended(process: subprocess.Popen[bytes]) -> None:
        started.append(process)
        end(process)

    monkeypatch.setattr(end_to_end, "_end", ended)
    run = results.Run(tmp_path / "run.jsonl", {"contestants": {}})
    plan = Plan((Spec("lin", 2, 0.1),), rounds=1, seconds=0.2)
    end_to_end.run(Session(plan, run, Clock({})))
    run.close()
    read = results.read(run.path)
    others = {*SERVERS} - {"pretzel", "echo"}
    absent = {each.contestant: each.note for each in read.of("absent")}
    assert absent.keys() == others, absent
    figures = Figures(read)
    versions = {each.contestant: each.note for each in read.of("versions")}
    assert set(versions) == {"pretzel", "echo"}
    assert "uvloop 0" in versions["echo"]
    for name in ("pretzel", "echo"):
        for connections in end_to_end.CONNECTIONS:
            rate = figures.value("end_to_end", "lin", name, "rate", connections)
            assert rate is not None
            assert rate > 0
            p50, p99, p999 = (
                figures.value("end_to_end", "lin", name, metric, connections)
                for metric in ("p50", "p99", "p999")
            )
            assert 0 < (p50 or 0) <= (p99 or 0) <= (p999 or 0)
    assert [one.poll() is not None for one in started] == [True, True]


class _Reports:
    """As much of a session as a race writes to: who was absent, and of whom there are figures."""

    plan = Plan((), seconds=0.1)

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.known: set[str] = set()
        self.progress = type("Progress", (), {"step": lambda *_: None})

    def absent(self, _: str, who: str, why: str) -> None:
        self.gone.append(f"{who}: {why}")

    def record(self, *where: str, **_: object) -> None:
        self.known.add(where[2])


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_server_that_fails_stands_still_while_others_have_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    servers = [subprocess.Popen(sleeps, start_new_session=True) for _ in range(2)]

    def race(port: int, *_: object) -> Outcome:
        until(servers[1 - port].pid, {"T"})  # nobody runs beside whose turn it is
        if port == 0:
            raise ConnectionError("it hung up")
        return Outcome(1.0, 1.0, 1.0, 1.0, "nobody")

    monkeypatch.setattr(end_to_end, "race", race)
    entries = {name: end_to_end.Entry(port, servers[port].pid) for port, name in enumerate(_TWO)}
    session, workload = _Reports(), _Saved(0.5)
    try:
        for entry in entries.values():
            end_to_end.stop(entry)
        end_to_end._race(session, workload, entries, 1, range(2))  # type: ignore[arg-type]  # as much as is used
    finally:
        for server in servers:
            end_to_end._end(server)
    assert session.gone == ["pretzel: 1 connections: it hung up"]
    assert session.known == {"echo"}
    end_to_end.stop(end_to_end.Entry(0, servers[0].pid))  # there is nothing to stop any more


_TWO = ("pretzel", "echo")
_REST = b'[{"data":[2]}]}', b"\r\n0\r\n\r\n"


def test_a_server_that_hangs_up_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        hangs = threading.Thread(target=_hang_up, args=(listener, 3))
        hangs.start()
        try:
            with pytest.raises(ConnectionError, match="hung up"):
                client.race(port, [b"GET / HTTP/1.1\r\n\r\n"], 3, 5.0)
        finally:
            hangs.join(20)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    assert [str(each.message) for each in found] == []


@pytest.mark.parametrize(
    ("head", "parts"),
    [
        (b"200 OK\r\nContent-Length: 26", [b'{"outputs":', b'[{"data":[2]}]}']),
        (b"200 OK\r\ntransfer-encoding: chunked", [b'b\r\n{"outputs":\r', b"\nf\r\n", *_REST]),
        (b"503 Busy\r\ncontent-length: 4", [b"no", b"ne"]),
    ],
)
def test_an_answer_in_parts(head: bytes, parts: list[bytes]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        all_parts = b"HTTP/1.1 ", head, b"\r\n\r\n", *parts
        responds = threading.Thread(target=_respond, args=(listener, all_parts))
        responds.start()
        wanted = nullcontext() if b"200" in head else pytest.raises(ConnectionError, match="none")
        try:
            with wanted:
                assert client.answer(listener.getsockname()[1], b"GET / HTTP/1.1\r\n\r\n") == [2.0]
        finally:
            responds.join(20)


def _respond(listener: socket.socket, parts: tuple[bytes, ...]) -> None:
    """Answer one request in parts."""
    with listener.accept()[0] as taken:
        taken.recv(100)
        for each in parts:
            taken.sendall(each)
            time.sleep(0.01)


def _hang_up(listener: socket.socket, count: int) -> None:
    """Take so many connections; the first is shut when all are there, the others are not."""
    taken = [listener.accept()[0] for _ in range(count)]
    for each in taken:
        each.recv(100)
    taken[0].close()
    for each in taken[1:]:
        each.recv(100)  # until the client has gone
        each.close()


def test_a_wrong_answer_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.client.answer", lambda *_: [0.25, 0.75])
    workload = _Saved(0.5)
    with pytest.raises(Absent, match=r"answers 0\.75 where scikit-learn says 0\.5"):
        end_to_end._check("pretzel", workload, end_to_end.Entry(1))  # type: ignore[arg-type]  # as much as is read
    end_to_end._check("echo", workload, end_to_end.Entry(1))  # type: ignore[arg-type]  # it knows no better


class _Saved:
    """As much of a workload as is read."""

    def __init__(self, expected: float) -> None:
        self.expected_value = expected
        self.inputs = type("Inputs", (), {"data": np.zeros((64, 2))})
        self.count = 2

    def pipelines(self) -> list[_Saved]:
        return [self]

    def expected(self) -> list[float]:
        return [self.expected_value]
