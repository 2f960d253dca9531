"""Requests slot by slot, and a policy over them: what it gained, and how many models it loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.cluster.placement.gain import Market
from runtime.cluster.placement.network import Numbers


@dataclass(frozen=True)
class Demand:
    """Requests for `slots` slots, a row for each, a column for each type.

    A type is a task and the node where its requests arrive.
    """

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


class PlacementPolicy(Protocol):
    """A policy that places models before it sees the requests of a slot."""

    def placement(self) -> NDArray[np.bool_]:
        """Models on each node in this slot."""

    def observe(self, requests: Numbers) -> None:
        """Learn from the requests of a slot."""


@dataclass(frozen=True)
class Trace:
    """The gain and the models that were loaded in every slot."""

    gains: Numbers
    loads: Numbers

    @property
    def gain(self) -> float:
        """The mean gain of a slot."""
        return float(self.gains.mean())

    @property
    def loads_a_slot(self) -> float:
        """Loads after the first slot, which fills empty nodes."""
        return float(self.loads[1:].mean()) if len(self.loads) > 1 else 0.0


def simulate(policy: PlacementPolicy, market: Market, demand: Demand) -> Trace:
    """Let a policy place models for requests, slot by slot."""
    gains, loads = np.zeros(len(demand)), np.zeros(len(demand))
    before = np.zeros(market.shape, bool)
    for slot, requests in enumerate(demand):
        now = policy.placement()
        gains[slot] = market.gain(now, requests)
        loads[slot] = np.count_nonzero(now & ~before)
        before = now
        policy.observe(requests)
    return Trace(gains, loads)
