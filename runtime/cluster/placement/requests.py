"""Requests a slot and type; a type is a task and the node where its requests arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from runtime.cluster.placement.network import Numbers


@dataclass(frozen=True)
class Demand:
    """Requests for `slots` slots, a row for each, a column for each type."""

    counts: Numbers

    def __iter__(self) -> Iterator[Numbers]:
        return iter(self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def mean(self) -> Numbers:
        """The average slot."""
        mean: Numbers = self.counts.mean(axis=0)
        return mean


def popular(
    tasks: int,
    leaves: int,
    slots: int,
    generator: np.random.Generator,
    *,
    rate: float = 300.0,
    every: int | None = None,
) -> Demand:
    """Poisson requests with Zipf popularity of tasks, a different order at each leaf.

    With `every`, popularity slides: after so many slots the most popular task becomes the least
    popular one, at every leaf. `rate` is requests a slot and leaf.
    """
    weights = 1.0 / np.arange(1, tasks + 1)
    weights /= weights.sum()
    orders = np.array([generator.permutation(tasks) for _ in range(leaves)])
    steps = np.arange(slots) // every if every else np.zeros(slots, int)
    ranks = (np.argsort(orders, axis=1)[None] - steps[:, None, None]) % tasks
    return Demand(
        generator.poisson(rate * weights[ranks]).reshape(slots, leaves * tasks).astype(float)
    )


def alternating(slots: int, rate: float = 100.0) -> Demand:
    """Two tasks, each asked for in every other slot: a policy that follows is always late."""
    counts = np.zeros((slots, 2))
    counts[np.arange(slots), np.arange(slots) % 2] = rate
    return Demand(counts)
