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
    def least(*calls: Callable[[], object]) -> list[float]:
        for call in calls:
            call()
        return [slower, 1.2, 1.0]

    monkeypatch.setattr(defaults, "least", least)
    for name, value in {"TREES": 5, "FRAME": 100, "FILE": 3000, "BLOCK": 20}.items():
        monkeypatch.setattr(defaults, name, value)
    goals = list(everywhere.measured(["defaults"]))
    assert {goal.name.split(",")[0].split(":")[0] for goal in goals} == {*WAYS}
    assert {goal.met for goal in goals} == {met}


def test_the_least_of_calls_is_of_bursts_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "TURNS", 3)
    few, many = defaults.least(lambda: sum(range(1000)), lambda: sum(range(20_000)))
    assert 0 < few < many
