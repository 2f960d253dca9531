"""Trees against everybody else who predicts with them: one run, one thread, taking turns.

Contestants live in processes and environments of their own (environments.py makes those); who is
not there is reported absent, and why. Their answers are compared before anything is timed. What
compilers make is kept, so that the second run takes two minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from tests.oven.bench.races import environments, models

ROUNDS, BLOCKS, SINGLES = 6, 8, 600


class Contestant:
    """A process that predicts when it is told to."""

    def __init__(self, name: str, model: models.Model) -> None:
        self.name, self.absent = name, ""
        self.blocks: list[int] = []
        self.singles: list[int] = []
        self.answers = Path(model["build"]) / f"{name}.npy"
        python = environments.interpreter(name)
        if python is None:
            self.absent = f"no environment: python {environments.__file__} makes it"
            return
        alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **alone},
            text=True,
        )
        told = {**model, "contestant": name, "answers": str(self.answers)}
        self.loaded = self.ask(do="load", model=told)

    def ask(self, **what: Any) -> dict[str, Any]:
        """One question, one answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(what) + "\n")
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline() or '{"absent": "it died"}')
        self.absent = answer.get("absent", "")
        return answer

    def turn(self) -> None:
        """A few blocks and single rows."""
        self.blocks += self.ask(do="block", turns=BLOCKS)["ns"]
        self.singles += self.ask(do="row", turns=SINGLES)["ns"]

    def report(self, right: Any) -> dict[str, Any]:
        """What it showed."""
        if self.absent:
            return {"absent": self.absent}
        got = np.load(self.answers).reshape(len(right), -1)[:, -1]
        return {
            "version": self.loaded["version"],
            "ready s": round(self.loaded["seconds"], 3),
            "row p50 us": round(float(np.percentile(self.singles, 50)) / 1e3, 2),
            "row p99 us": round(float(np.percentile(self.singles, 99)) / 1e3, 2),
            "block ms": round(min(self.blocks) / 1e6, 3),
            # Probabilities of almost one have no score.
            "largest difference": float(np.abs(got - right)[np.isfinite(got)].max()),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_process"):
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait(60)
            self._process.stdout.close()


def race(model: models.Model) -> dict[str, dict[str, Any]]:
    """What everybody showed."""
    everyone = [Contestant(name, model) for name in environments.CONTESTANTS]
    try:
        for _ in range(ROUNDS):
            for contestant in everyone:
                if not contestant.absent:
                    contestant.turn()
        right = np.load(everyone[0].answers).reshape(models.ROWS, -1)[:, -1]
        return {contestant.name: contestant.report(right) for contestant in everyone}
    finally:
        for contestant in everyone:
            contestant.__exit__()


def lines(name: str, shown: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The race as text."""
    yield name
    for contestant, facts in shown.items():
        said = ", ".join(f"{key} {value}" for key, value in facts.items())
        yield f"    {contestant:<12} {said}"


@pytest.mark.bench
@pytest.mark.parametrize("name", models.MODELS)
def test_trees_race(name: str, benchmark: Any) -> None:
    shown = race(models.ready(name))
    with (models.PLACE / "races.txt").open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines(name, shown))
    benchmark.extra_info |= shown
    benchmark(lambda: None)
    ours = shown["pretzel"]
    others = [facts for who, facts in shown.items() if who != "pretzel" and "absent" not in facts]
    exact = [facts["largest difference"] for facts in others]
    assert min(exact) < 1e-6, shown
    # Machines differ and are shared: the goals are twice as fast for a row, 1.3 times for a block.
    assert ours["row p50 us"] < min(facts["row p50 us"] for facts in others), shown
    assert ours["block ms"] < min(facts["block ms"] for facts in others), shown
