"""Rollouts of versions that are equal, and of one with twice the errors: how often they end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bench.goal import Goal
from runtime.rollout import Criterion, UnitSum, read_criteria

#: Requests of a whole rollout, its steps, and how often it is looked at.
REQUESTS, STEPS, LOOKS = 40_000, (5, 20, 50, 100), 100
ROLLOUTS, CAUGHT = 1000, 300
#: Errors, requests over 5 ms, disagreements and conversions of either: as much as is allowed.
ERRORS, SLOW, APART, CONVERTED = 0.02, 0.01, 0.02, 0.1
REQUIRE = ("errors < 1x champion", "p99 < 5 ms", "agreement > 98 %", "conversion > 1x champion")
#: What the challenger is asked while its doubled errors are looked for, at 5 % of the requests.
WITHIN, ALPHA = 2_000, 0.05


def measured() -> Iterator[Goal]:
    """The goals of rollouts."""
    name = f"{ROLLOUTS:,} rollouts of equal versions: share that is aborted"
    yield Goal(name, alarms(ROLLOUTS, 0), 0.05, at_most=True)
    for rate in (0.02, 0.05):
        said = f"{rate:.0%} errors of the champion, twice as many: caught in {WITHIN:,} answers"
        yield Goal(said, caught(rate, CAUGHT, 0), 0.95)


def alarms(rollouts: int, seed: int) -> float:
    """How often a rollout of two equal versions is aborted, looked at all the time."""
    rng, required = np.random.default_rng(seed), read_criteria(REQUIRE)
    return float(np.mean([_is_aborted(rng, required) for _ in range(rollouts)]))


def _is_aborted(rng: np.random.Generator, required: tuple[Criterion, ...]) -> bool:
    weights = np.repeat(np.array(STEPS) / 100, REQUESTS // len(STEPS))
    challenged = rng.random(REQUESTS) < weights
    rates = {"errors": ERRORS, "p99 0.005": SLOW, "agreement": 1 - APART, "conversion": CONVERTED}
    values = {name: rng.random(REQUESTS) < rate for name, rate in rates.items()}
    looks = np.linspace(REQUESTS // LOOKS, REQUESTS, LOOKS).astype(int) - 1
    sides = [_counts(values, side, looks) for side in (challenged, ~challenged)]
    alpha = ALPHA / len(required)
    return any(
        each.is_broken(sides[0][each.metric][look], sides[1][each.metric][look], alpha)
        for look in range(LOOKS)
        for each in required
    )


def _counts(
    values: dict[str, NDArray[np.bool_]], side: NDArray[np.bool_], looks: NDArray[np.int64]
) -> dict[str, list[UnitSum]]:
    """What was counted of a version at each look."""
    numbers = np.cumsum(side)[looks].tolist()
    return {
        name: [
            UnitSum(float(total), number)
            for total, number in zip(np.cumsum(each & side)[looks].tolist(), numbers, strict=True)
        ]
        for name, each in values.items()
    }


def caught(rate: float, rollouts: int, seed: int) -> float:
    """How often twice the champion's errors are seen, within so many answers at 5 %."""
    rng, (criterion,) = np.random.default_rng(seed), read_criteria(["errors < 1x champion"])
    looks = range(40, WITHIN, 40)
    found = 0
    for _ in range(rollouts):
        challenger = np.cumsum(rng.random(WITHIN) < 2 * rate).tolist()
        champion = np.cumsum(rng.random(19 * WITHIN) < rate).tolist()
        found += any(
            criterion.is_broken(
                UnitSum(float(challenger[look]), look + 1),
                UnitSum(float(champion[19 * look]), 19 * look + 1),
                ALPHA,
            )
            for look in looks
        )
    return found / rollouts
