"""Many models behind one port in the bench's short form: answers are compared, goals are missed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import environments
from bench.experiments import zipf
from bench.workload import Pipeline

pytestmark = pytest.mark.apart


@pytest.mark.parametrize("off", [0.0, 0.5])
def test_every_answer_is_compared(
    off: float,
    tmp_path: Path,
    bench_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PRETZEL_BENCH_CACHE", str(bench_cache))
    monkeypatch.setattr(environments, "PLACE", tmp_path)  # MLServer is not there
    short = {"COUNT": 8, "PEER_COUNTS": (4,), "ROUNDS": 1, "SECONDS": 0.3, "REQUESTS": 512}
    for name, value in {**short, "OF_ONE": 1e9}.items():
        monkeypatch.setattr(zipf, name, value)
    expected = Pipeline.expected
    monkeypatch.setattr(Pipeline, "expected", lambda self: expected(self) + off)
    met = {goal.name: goal.met for goal in zipf.measured()}
    assert met["wrong answers"] == (not off)
    assert not met["8 models, requests/s, of a server with one model"]
    assert [name for name in met if "MLServer" in name] == []
    assert "MLServer + scikit-learn, models: 4, left out" in capsys.readouterr().out
