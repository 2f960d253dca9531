"""The protocol between the run and a contestant's process, with a contestant that is a stand-in."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from bench import environments
from bench.contestant import Contestant, Model, Unsupported, number_block, number_row
from bench.crew import Absent, Member
from bench.histogram import Histogram
from bench.load import OpenLoop
from bench.worker import Worker, answer
from bench.workload import Pipeline, Saved
from tests.bench.conftest import Small


class Fake(Contestant):
    """Answers what was expected, plus `off`; slow by `seconds`."""

    name = "fake"
    title = "Fake"
    packages = ("numpy",)
    off: ClassVar[float] = 0.0
    seconds: ClassVar[float] = 0.0

    def prepare(self, pipeline: Pipeline, saved: Saved) -> None:
        if pipeline.number == 1:
            raise Unsupported("no second one")

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        answers = {
            row.tobytes(): each
            for row, each in zip(saved.inputs.data, pipeline.expected(), strict=False)
        }

        def call(rows: Any) -> Any:
            time.sleep(self.seconds)
            return np.array([answers.get(row.tobytes(), 0.0) for row in rows]) + self.off

        return Model(call, call, number_row, number_block, np.asarray, lambda raw: float(raw[0]))


@pytest.fixture
def worker(small: Small, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A worker in this process that has loaded two pipelines of the stand-in."""
    monkeypatch.setattr("bench.worker.find", lambda _: Fake)
    made, workload = Worker(), small("lin")
    assert "numpy" in answer(made, hello("fake"))["versions"]
    folder = str(workload.folder)
    said = answer(made, {"do": "load", "folder": folder, "numbers": [0, 1], "count": 2})
    assert len(Histogram.of_json(said["times"])) == 2
    return made


def hello(name: str) -> dict[str, Any]:
    return {"do": "hello", "name": name, "threads": 1, "options": {}}


def test_what_cannot_be_converted_is_said(worker: Worker, small: Small) -> None:
    command = {"do": "prepare", "folder": str(small("lin").folder), "count": 2}
    assert answer(worker, command) == {"refused": {1: "no second one"}}


def test_wrong_answers_are_counted(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer(worker, {"do": "check"}) == {"worst": 0.0, "wrong": 0, "rows": 64}
    monkeypatch.setattr(Fake, "off", 0.5)
    found = answer(worker, {"do": "check"})
    assert found["worst"] == pytest.approx(0.5)
    assert found["wrong"] == 64


def test_times_are_of_single_calls(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "seconds", 0.002)
    found = answer(worker, {"do": "hot", "calls": 5, "warm": 1})
    times = Histogram.of_json(found["times"])
    assert len(times) == 10
    assert times.least >= 2e6
    assert len(found["means"]) == 2
    found = answer(worker, {"do": "hot", "calls": 50, "warm": 1, "seconds": 0.04})
    assert 6 <= len(Histogram.of_json(found["times"])) <= 20, (
        "as many as fit, three of each at least"
    )


def test_first_calls_are_not_the_first_thing_that_a_process_does(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has stood still before, which is no pipeline's affair; the very first call counts."""
    asked: list[int] = []
    places = {id(model): place for place, (_, model) in enumerate(worker._models)}

    def burst(model: Model, *_: int) -> list[int]:
        asked.append(places[id(model)])
        return [1000 + asked[-1]]

    monkeypatch.setattr(worker, "_burst", burst)
    assert answer(worker, {"do": "first_calls", "start": 1}) == {"times": [1001]}
    assert asked == [0, 1]
    assert answer(worker, {"do": "first_calls", "start": 0}) == {"times": [1000, 1001]}
    assert asked[2:] == [0, 1]


def test_throughput_counts_rows_and_processor_time(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fake, "seconds", 0.01)
    for callers in (1, 2):
        command = {"do": "throughput", "batch": 7, "seconds": 0.05, "callers": callers}
        found = answer(worker, command)
        assert found["rows"] % 7 == 0
        # How many calls fit is the machine's affair, that all callers are counted is not.
        assert found["rows"] >= 7 * callers
        assert found["seconds"] >= 0.05
        assert found["rows"] <= 7 * callers * (found["seconds"] / 0.01 + 1)
        assert found["cpu_seconds"] < found["seconds"] * callers, "it slept most of the time"


def test_memory_is_there(worker: Worker) -> None:
    found = answer(worker, {"do": "memory"})
    assert found["rss"] >= found["pss"] >= 0
    assert found["rss"] > 10 << 20


def test_an_error_is_an_answer(worker: Worker) -> None:
    found = answer(worker, {"do": "load", "folder": "nowhere", "numbers": [0], "count": 1})
    assert found["error"].startswith("FileNotFoundError")


def test_waits_count_from_when_a_request_was_due(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At four times what it can do, waits grow with the queue: nothing is left out."""
    monkeypatch.setattr(Fake, "seconds", 0.02)
    monkeypatch.setattr("bench.machine.cores", lambda: 1)
    models = [model for _, model in worker._models]
    loop = OpenLoop(worker._contestant, models, worker._inputs)
    for _ in range(5):  # a machine that stands still for a moment does slow it down
        found = loop.offer(200.0, 0.5, seed=0)
        if found.sent > 0.9 * found.asked and found.requests >= 5:
            break
    worker._contestant.close()
    assert found.asked > 70
    assert found.sent > 0.9 * found.asked, "a slow server must not slow the load down"
    assert 5 <= found.requests <= 26
    waits = Histogram()
    waits.merge(found.single)
    waits.merge(found.blocks)
    assert waits.percentile(1.0) > 0.2e9
    assert len(waits) == found.asked, "who has no answer has waited, too"


def test_who_is_woken_late_sends_late(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = time.sleep
    monkeypatch.setattr("bench.load.time.sleep", lambda seconds: usual(seconds + 0.005))
    models = [model for _, model in worker._models]
    found = OpenLoop(worker._contestant, models, worker._inputs).offer(30.0, 0.5, seed=0)
    worker._contestant.close()
    assert len(found.late) == found.sent > 0
    assert found.late.percentile(0.5) > 4e6


def test_popular_models_are_the_same_at_every_rate(worker: Worker) -> None:
    models = [model for _, model in worker._models] * 4
    loop = OpenLoop(worker._contestant, models, worker._inputs)
    for seed in (1, 2):
        slow, fast = (loop._arrivals(rate, 2.0, seed)[1] for rate in (100.0, 1000.0))
        assert Counter(slow).most_common(1)[0][0] == Counter(fast).most_common(1)[0][0]
        share = Counter(fast).most_common(1)[0][1] / len(fast)
        assert share == pytest.approx(0.62, abs=0.08), "Zipf's law with exponent 2"


def test_a_real_process(small: Small) -> None:
    workload = small("lin")
    with Member("sklearn") as member:
        folder = str(workload.folder)
        member.ask("load", folder=folder, numbers=[0, 1], count=2)
        assert member.ask("check")["wrong"] == 0
        with pytest.raises(Absent, match="has no attribute"):
            member.ask("dance")
    assert member._process.returncode == 0


def test_what_is_switched_off_answers_the_same(small: Small) -> None:
    workload = small("ac")
    folder, numbers = str(workload.folder), list(range(workload.count))
    with Member("pretzel", options={"entries": False, "pools": False, "store": False}) as member:
        member.ask("prepare", folder=folder, count=workload.count)
        member.ask("load", folder=folder, numbers=numbers, count=workload.count)
        found = member.ask("check")
        assert found["wrong"] == 0
        assert found["worst"] < 1e-9
        assert member.ask("sizes")["unique"] > 1000


def test_a_process_that_hangs_is_ended(small: Small) -> None:
    workload = small("lin")
    with Member("sklearn") as member:
        member.ask("load", folder=str(workload.folder), numbers=[0], count=1)
        with pytest.raises(Absent, match="its process ended with -9"):
            member.ask("throughput", limit=0.3, batch=1, seconds=60.0, callers=1)


def test_a_missing_environment_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "PLACE", tmp_path)
    with pytest.raises(Absent, match="python -m bench environments lleaves"):
        Member("lleaves")
    (tmp_path / "lleaves.failed").write_text("it needs Python 3.10, which is not installed")
    with pytest.raises(Absent, match=r"it needs Python 3\.10"):
        Member("lleaves")
