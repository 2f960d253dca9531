"""How soon candidates that are trained side by side are served, and what another run costs.

    python -m bench training

Trainings take 1, 2, 3 and 30 seconds, of which most is sleep, so that two cores are enough. Each
one is better than those before. An endpoint is asked all the time.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.goal import Goal

QUESTION = "training: how soon candidates are served, and what another run costs"
_CANDIDATE = """
@candidate(sample="sample")
def after_{seconds}(rows, C={C}):
    return trained(rows, C, {seconds})
"""
_RECIPE = '''
"""Candidates that take their time."""

import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from pretzel.training import candidate, gate, step


@step
def rows(number=1000):
    return np.random.default_rng(0).normal(size=(number, 10))


@step
def sample(rows):
    return rows[:100]


def trained(rows, C, seconds):
    time.sleep(seconds)
    model = LogisticRegression(C=C).fit(rows, rows[:, 0] > 0)
    with Path(__file__).with_name("ready").open("a") as file:
        file.write(f"{time.time()} ")
    return model


@gate(at_least=0.0)
def strength(model, rows):
    sure = model.predict_proba(rows).std()
    return float(model.C if hasattr(model, "C") else 100 + sure)  # the mean of two is best
'''


def measured(longest: int = 30) -> Iterator[Goal]:
    """Every goal, with what was measured; the longest training takes this many seconds."""
    seconds = (1, 2, 3, longest)
    with tempfile.TemporaryDirectory() as folder:
        yield from _fan_out(Path(folder), seconds)


def _fan_out(folder: Path, seconds: tuple[int, ...]) -> Iterator[Goal]:
    from pretzel.training import Publisher, Recipe, TrainingCache, WorkerProcesses, train
    from runtime import Runtime

    path, jobs = folder / "fan_out.py", len(seconds)
    candidates = [_CANDIDATE.format(seconds=each, C=0.1 * each) for each in seconds]
    path.write_text(_RECIPE + "\n".join(candidates))
    with Runtime() as runtime, WorkerProcesses(jobs) as processes:
        publisher, asking = Publisher("m", runtime), _Asking(runtime)
        with TrainingCache(folder / "cache") as cache, asking:
            train(Recipe.read(path), cache, publisher, processes)
        ready = [float(each) for each in (folder / "ready").read_text().split()]
        names = ("the first answer, s after it is ready", *["the mean of the best two, s"] * 3)
        for name, one, answered in zip(names, ready, asking.changes, strict=True):
            yield Goal(name, answered - one, 0.5, at_most=True)
        yield Goal("requests that failed meanwhile", asking.failed, 0, at_most=True)
        with TrainingCache(folder / "cache") as cache:
            start = time.perf_counter()
            again = train(Recipe.read(path), cache, publisher, processes)
            took = time.perf_counter() - start
            yield Goal("another run without a change, s", took, 0.3, at_most=True)
            yield Goal("steps that it computed", len(again.ran), 0, at_most=True)
            settings = {"after_1.C": "0.05"}
            again = train(Recipe.read(path, settings), cache, publisher, processes)
            own = sum(each.endswith("after_1") for each in again.ran)
            yield Goal("parts of a candidate computed after its parameter changed", own, 3)
            yield Goal("others", len(again.ran) - own, 0, at_most=True)


class _Asking:
    """Asks an endpoint all the time, and notes when its answer changes."""

    def __init__(self, runtime: Any) -> None:
        self._runtime, self._ended = runtime, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.changes: list[float] = []
        self.failed = 0

    def _run(self) -> None:
        last, row = None, [0.3] * 10
        while not self._ended.wait(0.005):
            if not self._runtime.endpoints.champions:
                continue
            try:
                answer = round(float(self._runtime.predict("m", row)["probabilities"][1]), 9)
            except Exception:  # noqa: BLE001 (this is what is counted)
                self.failed += 1
                continue
            if answer != last:
                last = answer
                self.changes.append(time.time())

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.wait(0.1)
        self._ended.set()
        self._thread.join()
