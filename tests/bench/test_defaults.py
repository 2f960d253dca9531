"""Default calls beside the best ones, in the bench's short form: every way in, and what fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bench.experiments import defaults, everywhere

WAYS = (
    *("predict", "submit", "plan.run", "predict_batch", "InferenceSession", "pandas", "Polars"),
    *("DuckDB", "HTTP", "pretzel predict"),
)


@pytest.mark.apart
@pytest.mark.parametrize(("slower", "met"), [(1.05, True), (1.15, False)])
def test_a_default_that_takes_longer_than_the_best_is_missed(
    slower: float,
    met: bool,  # noqa: FBT001 (a fact)
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = defaults.least

    def least(*calls: Callable[[], object]) -> list[float]:
        assert min(real(*calls)) > 0
        return [slower, 1.2, 1.0]

    short = {"TREES": 5, "FRAME": 100, "FILE": 3000, "BLOCK": 20, "TURNS": 1, "TURN_SECONDS": 1e-6}
    for name, value in {**short, "least": least}.items():
        monkeypatch.setattr(defaults, name, value)
    goals = list(everywhere.measured(["defaults"]))
    assert {goal.name.split(",")[0].split(":")[0] for goal in goals} == {*WAYS}
    assert {goal.met for goal in goals} == {met}
