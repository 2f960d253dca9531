"""Trainings that begin by time, by an alarm or by hand, and rollouts of their versions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
import oven
from pretzel.training import Publisher, Retraining, TrainingOutcome, train
from runtime import Runtime
from runtime.watch import PageHinkley, Watch
from tests.house import until
from tests.runtime.conftest import Clock
from tests.runtime.training.recipes import Inline, cache, recipe

TERMS = {"steps": (50, 100), "dwell": 0.01, "header": "user", "least": 5}


class Training:
    """Trains the recipe with another weight each time."""

    def __init__(self, folder: Path, publisher: Publisher) -> None:
        self.folder, self.publisher, self.weight = folder, publisher, 1

    def __call__(self, why: str) -> TrainingOutcome:
        self.weight += 1
        with cache(self.folder) as opened:
            made = recipe(self.folder, weak__weight=str(self.weight))
            return train(made, opened, self.publisher, Inline())


def watched(runtime: Runtime, **options: Any) -> Callable[[], Watch]:
    reference = np.random.default_rng(0).normal(size=(2000, 2))
    return lambda: runtime.watch("m", reference=reference, **options)


def ask(runtime: Runtime, rows: Any) -> None:
    for number, row in enumerate(rows):
        runtime.predict("m", row, headers={"user": str(number)})


def fold(again: Retraining) -> None:
    assert again.watch is not None
    again.watch.fold()


def test_drift_trains_a_version_that_is_rolled_out(tmp_path: Path, runtime: Runtime) -> None:
    training = Training(tmp_path, Publisher("m", runtime, TERMS))
    training("the first")
    rows, clock = np.random.default_rng(1).normal(size=(600, 2)), Clock(1_000_000.0)
    with Retraining(
        training, training.publisher, watch=watched(runtime), clock=clock, start=False
    ) as again:
        ask(runtime, rows)
        fold(again)
        assert again.look() == ""
        ask(runtime, rows + np.array([3.0, 0.0]))
        fold(again)
        assert again.look().startswith("drift of 0: PSI ")
        former = again.watch
        assert runtime.rollout("m").state == "running"
        assert again.look() == ""  # as long as the rollout runs

        def is_over() -> bool:
            ask(runtime, rows[:100])
            return runtime.rollout("m").state == "done"

        until(is_over)
        assert runtime.endpoints.find("m").owner == "m@2"
        assert again.look() == ""  # and another watch has begun
        assert again.watch is not former
        assert again.watch is not None
        assert again.watch.version.owner == "m@2"
        ask(runtime, rows + np.array([3.0, 0.0]))
        fold(again)
        assert again.look() == ""  # too soon
        clock.now += 600
        assert again.look().startswith("drift of")
        assert [why[:8] for why, _ in again.outcomes] == ["drift of"] * 2


def test_an_alarm_of_a_detector_trains(tmp_path: Path, runtime: Runtime) -> None:
    training = Training(tmp_path, Publisher("m", runtime))
    training("the first")
    watch = watched(runtime, detectors=PageHinkley(threshold=1.0))
    with Retraining(training, training.publisher, watch=watch, start=False) as again:
        ask(runtime, [[0.0, 0.0]] * 50 + [[9.0, 0.0]] * 50)
        fold(again)
        assert again.look().startswith("PageHinkley has alarmed; causes: ")
    assert runtime.endpoints.find("m").owner == "m@2"


def test_time_and_requests_train(tmp_path: Path, runtime: Runtime) -> None:
    training, clock = Training(tmp_path, Publisher("m", runtime)), Clock(1_000_000.0)
    with Retraining(training, training.publisher, every=60, clock=clock, start=False) as again:
        assert again.look() == ""
        again.request()
        assert again.look() == "by hand"
        clock.now += 59
        assert again.look() == ""
        clock.now += 1
        assert again.look() == "60 s since the last training"
        assert again.look() == ""


def test_a_training_that_fails_is_tried_again_in_its_time(runtime: Runtime) -> None:
    def fail(why: str) -> TrainingOutcome:
        raise KeyError(why)

    clock = Clock(1_000_000.0)
    runtime.register("m", oven.bake(flour.vector("x", 2).linear([[1.0, 0.0]], [0.0])))
    again = Retraining(
        fail, Publisher("m", runtime), watch=watched(runtime), every=60, clock=clock, start=False
    )
    with again:
        clock.now += 60
        with pytest.raises(KeyError):
            again.look()
        ask(runtime, np.full((600, 2), 9.0))
        fold(again)
        assert again.look() == ""


def test_a_thread_looks(tmp_path: Path, runtime: Runtime) -> None:
    training = Training(tmp_path, Publisher("m", runtime))
    with Retraining(training, training.publisher) as again:
        again.request("at once")
        until(lambda: again.outcomes)
    assert again.outcomes[0][0] == "at once"


def test_a_later_training_ends_the_rollout_of_the_one_before(
    tmp_path: Path, runtime: Runtime
) -> None:
    training = Training(tmp_path, Publisher("m", runtime, {**TERMS, "dwell": 1000}))
    for _ in range(3):
        training("")
    assert runtime.rollout("m").terms.to == "m@3"
    assert runtime.endpoints.find("m").owner == "m@1"
