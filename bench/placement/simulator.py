"""Requests slot by slot, and a policy over them: what it gained, and how many models it loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bench.placement.gain import Market
from bench.placement.network import Numbers


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


Placement = NDArray[np.bool_]


def greedy(market: Market, requests: Numbers) -> Placement:
    """The model and node that save most for each byte, again and again until nothing fits."""
    catalogue, left = market.catalogue, market.network.budgets.copy()
    placed = np.zeros(market.shape, bool)
    best = market.default.copy()
    weight = np.minimum(market.capacity, requests)[:, None]
    sizes = np.broadcast_to(catalogue.alone, market.shape).copy()
    while True:
        saved = market.by_place(weight * np.maximum(best[:, None] - market.costs, 0.0))
        value = np.where((sizes <= left[:, None]) & ~placed, saved / sizes, 0.0)
        place = int(value.argmax())
        if value.flat[place] <= 0:
            return placed
        node, model = divmod(place, market.shape[1])
        placed[node, model] = True
        left[node] = market.network.budgets[node] - catalogue.bytes_of(placed[node])
        if catalogue.holds is not None:
            sizes[node] = [catalogue.added(each, placed[node]) for each in range(len(catalogue))]
        best = np.minimum(best, np.where(market.places == place, market.costs, np.inf).min(axis=1))


class Static:
    """One placement for all slots."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    def placement(self) -> Placement:
        """The placement."""
        return self._placement

    def observe(self, requests: Numbers) -> None:
        """Learn nothing."""


class OnlineGreedy(Static):
    """`greedy` for the requests seen so far, older ones counting less, every few slots."""

    def __init__(self, market: Market, *, every: int = 10, keep: float = 0.9) -> None:
        super().__init__(np.zeros(market.shape, bool))
        self._market, self._every, self._keep = market, every, keep
        self._seen, self._slots = np.zeros(len(market.default)), 0

    def observe(self, requests: Numbers) -> None:
        """Count the requests, and place again when it is time."""
        self._seen = self._keep * self._seen + requests
        if self._slots % self._every == 0:
            self._placement = greedy(self._market, self._seen)
        self._slots += 1


class LRU(Static):
    """Each node keeps the models that were the best option of the most recent requests."""

    def __init__(self, market: Market) -> None:
        super().__init__(np.zeros(market.shape, bool))
        self._market, self._used, self._slots = market, np.zeros(market.shape), 0

    def observe(self, requests: Numbers) -> None:
        """Note what was asked for; of one slot, what was asked for more often is more recent."""
        self._slots += 1
        nodes = np.where(self._market.real, self._market.places // self._market.shape[1], -1)
        first = np.zeros(nodes.shape)
        for node in range(self._market.shape[0]):
            there = nodes == node
            rows = np.flatnonzero(there.any(axis=1))
            first[rows, there[rows].argmax(axis=1)] = 1.0
        asked = self._market.by_place(requests[:, None] * first)
        recent = self._slots + asked / (1.0 + asked.max(initial=0.0))
        self._used = np.where(asked > 0, recent, self._used)
        self._placement = _packed(self._market, self._used)


class OLAG(Static):
    """Each node counts what each model saved or would have saved, and packs by count for a byte."""

    def __init__(self, market: Market, *, keep: float = 0.9) -> None:
        super().__init__(np.zeros(market.shape, bool))
        self._market, self._keep, self._count = market, keep, np.zeros(market.shape)

    def observe(self, requests: Numbers) -> None:
        """Count, and pack again."""
        market = self._market
        costs = np.where(market.present(self._placement) > 0, market.costs, market.default[:, None])
        with_default = np.sort(np.column_stack([costs, market.default]), axis=1)
        best, second = with_default[:, :1], with_default[:, 1:2]
        instead = np.where(costs == best, second, best)
        saved = np.minimum(market.capacity, requests)[:, None] * np.maximum(
            instead - market.costs, 0.0
        )
        self._count = self._keep * self._count + market.by_place(saved)
        self._placement = _packed(market, self._count / market.catalogue.alone)


def _packed(market: Market, worth: Numbers) -> Placement:
    """The models of most worth that fit, for each node."""
    placed = np.zeros(market.shape, bool)
    for node, budget in enumerate(market.network.budgets):
        left = float(budget)
        for model in np.argsort(-worth[node], kind="stable"):
            size = market.catalogue.added(int(model), placed[node])
            if worth[node, model] <= 0:
                break
            if size <= left:
                placed[node, model] = True
                left -= size
    return placed
