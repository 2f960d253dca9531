"""Servers under the bench's client: ours answers as scikit-learn does, and all are ended."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bench import environments, results
from bench.clock import Clock
from bench.crew import Absent
from bench.experiments import end_to_end
from bench.report.figures import Figures
from bench.servers import SERVERS
from bench.session import Plan, Session
from bench.workload import Spec


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
    assert {each.contestant for each in read.of("absent")} == others
    figures = Figures(read)
    for name in ("pretzel", "echo"):
        for connections in end_to_end.CONNECTIONS:
            rate = figures.value("end_to_end", "lin", name, "rate", connections)
            assert rate is not None
            assert rate > 0
            p50, p99 = (
                figures.value("end_to_end", "lin", name, metric, connections)
                for metric in ("p50", "p99")
            )
            assert 0 < (p50 or 0) <= (p99 or 0)
    assert [one.poll() is not None for one in started] == [True, True]


def test_a_wrong_answer_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.client.answer", lambda *_: [0.25, 0.75])
    workload = _Saved(0.5)
    with pytest.raises(Absent, match=r"answers 0\.75 where scikit-learn says 0\.5"):
        end_to_end._check("pretzel", workload, end_to_end.Door(1))  # type: ignore[arg-type]  # as much as is read
    end_to_end._check("echo", workload, end_to_end.Door(1))  # type: ignore[arg-type]  # it knows no better


class _Saved:
    """As much of a workload as is read."""

    def __init__(self, expected: float) -> None:
        self.expected_value = expected
        self.inputs = type("Inputs", (), {"data": np.zeros((1, 2))})

    def pipelines(self) -> list[_Saved]:
        return [self]

    def expected(self) -> list[float]:
        return [self.expected_value]
