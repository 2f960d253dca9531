"""Which of 20,000 models stay in memory: the placement policy against GreedyDual.

A replay: requests with Zipf popularity, fixed or sliding, and what loading takes for those whose
model is not there. On one machine, and on three nodes, where models have homes by a hash of their
names and each node keeps by GreedyDual. GreedyDual-Size with a second chance is as in the runtime
(record 0008).
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from bench.goal import Goal
from bench.placement import Catalogue, Market, MirrorAscent, Network

MODELS, SLOTS, REQUESTS = 20_000, 200, 2_000
#: The bytes of all models that there is memory for, and the nodes that have it together.
PART, NODES = 0.1, 3

Numbers = NDArray[np.float64]


def memory_goals() -> Iterator[Goal]:
    """Seconds of loading by GreedyDual, of those by placement: while it is less, it stays."""
    generator = np.random.default_rng(0)
    sizes = np.exp(generator.normal(11, 1.2, MODELS))
    seconds = 1e-3 + sizes * 2e-9 * np.exp(generator.normal(0, 0.5, MODELS))
    for kind, step in (("fixed", 0), ("sliding", 40)):
        weights = 1 / np.arange(1, MODELS + 1)
        order = generator.permutation(MODELS)
        ranks = generator.choice(MODELS, (SLOTS, REQUESTS), p=weights / weights.sum())
        requests = [order[(row + slot * step) % MODELS] for slot, row in enumerate(ranks)]
        total = sum(float(seconds[each].sum()) for each in requests)
        for nodes in (1, NODES):
            dual = sum(
                _greedy_dual(
                    [each[each % nodes == node] for each in requests], sizes, seconds, nodes
                )
                for node in range(nodes)
            )
            placed = _placed(requests, sizes, seconds, nodes)
            print(
                f"# memory, {kind}, nodes {nodes}: loading takes {total:.0f} s without a cache, "
                f"{dual:.1f} s with GreedyDual, {placed:.1f} s by placement"
            )
            yield Goal(
                f"20,000 models, {kind}, nodes {nodes}: GreedyDual's loading of placement's",
                dual / placed,
                1.0,
                at_most=True,
            )


def _greedy_dual(
    requests: list[NDArray[np.int64]], sizes: Numbers, seconds: Numbers, nodes: int
) -> float:
    """One node of so many, of which each has its part of the memory."""
    budget, used, age, spent = sizes.sum() * PART / nodes, 0.0, 0.0, 0.0
    heap: list[tuple[float, int]] = []
    there, called = np.zeros(MODELS, bool), np.zeros(MODELS, bool)
    for model in np.concatenate(requests):
        if there[model]:
            called[model] = True
            continue
        spent += seconds[model]
        there[model], used = True, used + sizes[model]
        heappush(heap, (age + seconds[model] / sizes[model], int(model)))
        while used > budget:
            worth, one = heappop(heap)
            if called[one] or one == model:
                called[one] = False
                heappush(heap, (age + seconds[one] / sizes[one], one))
                age = max(age, worth) if one == model else age
                continue
            age, there[one], used = max(age, worth), False, used - sizes[one]
    return spent


def _placed(
    requests: list[NDArray[np.int64]], sizes: Numbers, seconds: Numbers, nodes: int
) -> float:
    """Every model twice: in memory at no cost, and in the repository at the cost of loading.

    Clients reach every node alike, so the nodes are a chain without round trips.
    """
    tasks = np.tile(np.arange(MODELS), 2)
    costs = np.concatenate([np.zeros(MODELS), seconds])
    both = Catalogue(
        tasks,
        np.concatenate([sizes, np.ones(MODELS)]),
        costs,
        np.ones(2 * MODELS),
        np.arange(MODELS, 2 * MODELS),
    )
    names = tuple(f"node{number}" for number in range(nodes))
    parents = (*range(1, nodes), -1)
    budgets = np.full(nodes, sizes.sum() * PART / nodes + MODELS)
    market = Market(Network(names, parents, (0.0,) * nodes, budgets), both)
    policy = MirrorAscent(market, np.random.default_rng(1), rate=300, refresh=1)
    spent, before = 0.0, np.zeros(MODELS, bool)
    for asked in requests:
        there = policy.placement()[:, :MODELS].any(axis=0)
        counts = np.bincount(asked, minlength=MODELS)
        spent += float(seconds[there & ~before].sum() + (counts * seconds)[~there].sum())
        before = there | (counts > 0)  # what was loaded for a request need not be loaded again
        policy.observe(counts.astype(float))
    return spent
