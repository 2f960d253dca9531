"""The tests hold whenever one looks: false alarms are rare, and doubled errors are seen."""

from __future__ import annotations

import numpy as np
import pytest

from bench.experiments.rollout_simulations import alarms, caught
from runtime.rollout.evidence import against_at_least, against_at_most, lower, upper

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.5, 0.97])
def test_bounds_hold_at_all_times(rate: float) -> None:
    outside = 0
    for _ in range(200):
        sums = np.cumsum(RNG.random(3000) < rate)
        looks = range(10, 3000, 60)
        outside += any(
            not lower(float(sums[n]), n + 1, 0.05) <= rate <= upper(float(sums[n]), n + 1, 0.05)
            for n in looks
        )
    assert outside <= 30  # of 200, where each side may be wrong in 5 %


def test_bounds_close_in_on_the_mean() -> None:
    width = [
        upper(0.2 * n, n, 0.05) - lower(0.2 * n, n, 0.05) for n in (0, 100, 1_000, 10_000, 100_000)
    ]
    assert width[0] == pytest.approx(1.0)
    assert width == sorted(width, reverse=True)
    assert width[-1] < 0.02


def test_values_between_0_and_1_count_as_rates_do() -> None:
    """For values of any kind the mean over all outcomes is at most 1, as for a fair game."""
    for values in ((0.0, 1.0), (0.3, 0.3), (0.1, 0.9, 0.2)):
        mean = sum(values) / len(values)
        for against in (against_at_most, against_at_least):
            assert np.mean([np.exp(against(value, 1, mean)) for value in values]) <= 1 + 1e-12


def test_false_alarms_and_power() -> None:
    """Small numbers of what `python -m bench experiments` does in large ones."""
    assert alarms(rollouts=150, seed=1) <= 0.05 + 0.04
    assert caught(rate=0.05, rollouts=40, seed=2) >= 0.95
