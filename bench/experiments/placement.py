"""Which models live where: the online policy against bounds, greedy rules and an adversary.

    python -m bench placement

A table by itself, from a simulator: no contestants. Also draws docs/charts/placement-*.svg.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.experiments.placement_hashing import hashing_goals
from bench.experiments.placement_memory import memory_goals
from bench.experiments.sentiment_digests import sentiment
from bench.goal import Goal
from bench.placement import (
    CHAIN,
    LRU,
    OLAG,
    TREE,
    Demand,
    Market,
    MirrorAscent,
    Network,
    OnlineGreedy,
    PlacementPolicy,
    Static,
    Trace,
    alternating,
    greedy,
    popular,
    shared,
    simulate,
    variants,
)
from bench.report.svg import Axis, Series, alone, chart

QUESTION = "Placement of models on nodes, online, against bounds and greedy rules"
TASKS, SLOTS, SLIDES = 20, 1000, 50
#: Sizes of the models of a task.
LADDER = (40.0, 80.0, 160.0, 320.0, 640.0)
CHARTS = Path(__file__).parents[2] / "docs" / "charts"


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    for name, network in (("tree", TREE), ("chain", CHAIN)):
        yield from _gains(name, network)
    yield _adversary()
    yield _regret()
    yield _time()
    yield _shared()
    yield from memory_goals()
    yield from hashing_goals()
    for name, drawn in figures().items():
        (CHARTS / f"placement-{name}.svg").write_text(alone(drawn), encoding="utf-8")


def market_of(network: Network, **options: float) -> Market:
    """Twenty tasks of five models."""
    return Market(network, variants(TASKS, np.random.default_rng(0), LADDER), **options)


def demand_of(
    network: Network, every: int | None = None, slots: int = SLOTS, rate: float = 300.0
) -> Demand:
    """Zipf requests, with popularity that slides or not."""
    leaves = len(network.leaves)
    return popular(TASKS, leaves, slots, np.random.default_rng(1), every=every, rate=rate)


def bound(market: Market, requests: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """The most that a placement gains in a mean slot, and that placement: a linear programme."""
    from scipy.optimize import linprog
    from scipy.sparse import bmat, coo_matrix

    nodes, models = market.shape
    types, places = np.nonzero(market.real)[0], market.places[market.real]
    options, number = len(types), np.arange(len(types))
    able = np.minimum(market.capacity, requests)[types]
    present = coo_matrix((-able, (number, places)), (options, nodes * models))
    once = coo_matrix((np.ones(options), (types, number)), (len(requests), options))
    own = np.tile(market.catalogue.alone, nodes)
    node = np.repeat(np.arange(nodes), models)
    sizes = coo_matrix((own, (node, np.arange(nodes * models))), (nodes, nodes * models))
    identity = coo_matrix((np.ones(options), (number, number)))
    rows = bmat([[present, identity], [None, once], [sizes, None]]).tocsr()
    limits = np.concatenate([np.zeros(options), requests, market.network.budgets])
    saved = market.default[types] - market.costs[market.real]
    value = np.concatenate([np.zeros(nodes * models), -saved])
    ends = [(0, 1)] * (nodes * models) + [(0, None)] * options
    found = linprog(value, A_ub=rows, b_ub=limits, bounds=ends, method="highs")
    return -float(found.fun), found.x[: nodes * models].reshape(market.shape)


def _mirror(market: Market, **options: Any) -> MirrorAscent:
    return MirrorAscent(market, np.random.default_rng(2), **options)


def _drawn(market: Market, demand: Demand, **options: Any) -> tuple[float, float]:
    """The gain and the loads of a slot, on average over random numbers of the rounding."""
    policies = [MirrorAscent(market, np.random.default_rng(seed), **options) for seed in (2, 3, 4)]
    traces = [simulate(policy, market, demand) for policy in policies]
    return (
        float(np.mean([trace.gain for trace in traces])),
        float(np.mean([trace.loads_a_slot for trace in traces])),
    )


def _gains(name: str, network: Network) -> Iterator[Goal]:
    market = market_of(network)
    for kind, every, share in (("fixed", None, 0.95), ("sliding", SLIDES, 0.93)):
        demand = demand_of(network, every)
        most, _ = bound(market, demand.mean)
        still = simulate(Static(greedy(market, demand.mean)), market, demand).gain
        ours, loads = _drawn(market, demand)
        fresh, _ = _drawn(market, demand, refresh=1)
        counts = simulate(OLAG(market), market, demand)
        lru = simulate(LRU(market), market, demand)
        print(
            f"# {name}, {kind}, of the bound: static {still / most:.3f}, "
            f"OLAG {counts.gain / most:.3f} ({counts.loads_a_slot:.1f} loads), "
            f"LRU {lru.gain / most:.3f} ({lru.loads_a_slot:.1f})"
        )
        yield Goal(f"{name}, {kind}: gain of the linear programme's bound", ours / most, share)
        yield Goal(f"{name}, {kind}: gain of static greedy's", ours / still, 1.0)
        yield Goal(f"{name}, {kind}: gain of OLAG's, rounded each slot", fresh / counts.gain, 0.97)
        yield Goal(f"{name}, {kind}: loads a slot", loads, 2.0, at_most=True)
        lost = 100 * (1 - ours / fresh)
        yield Goal(f"{name}, {kind}: gain lost by fewer loads, %", lost, 1.0, at_most=True)


def _adversary() -> Goal:
    node = Network(("node",), (-1,), (40.0,), np.array([1.0]))
    market = Market(node, shared({"a": {"p": 1}, "b": {"q": 1}}))
    demand = alternating(SLOTS)
    trials = [
        simulate(MirrorAscent(market, np.random.default_rng(seed)), market, demand).gain
        for seed in range(20)
    ]
    follower = simulate(OLAG(market), market, demand).gain
    floor = market.gain(np.ones(market.shape), demand.mean) / SLOTS
    return Goal(
        "alternating adversary: gain of OLAG's", float(np.mean(trials)) / max(follower, floor), 5
    )


def _regret() -> Goal:
    """Regret of the probabilities against the best fixed ones, at more and more slots."""
    market, scaled = market_of(CHAIN), []
    for slots in (100, 1000, 10_000):
        demand = demand_of(CHAIN, slots=slots)
        _, best = bound(market, demand.mean)
        policy, regret = _mirror(market, window=np.inf, refresh=1 << 30), 0.0
        for requests in demand:
            regret += market.gain(best, requests) - market.gain(policy.presence, requests)
            policy.observe(requests)
        scaled.append(regret / slots**0.5)
    print(
        "# regret over the root of T at T = 100, 1,000, 10,000:",
        *(f"{each:.0f}" for each in scaled),
    )
    worst = max(after / before for before, after in pairwise(scaled))
    return Goal(
        "regret over root of T: most that it rises from one T to the next, x",
        worst,
        1.0,
        at_most=True,
    )


def _time() -> Goal:
    """The processor time of a slot for each node, with a thousand models."""
    market = Market(TREE, variants(200, np.random.default_rng(0), LADDER))
    demand = popular(200, len(TREE.leaves), 12, np.random.default_rng(1))
    policy, least = _mirror(market, refresh=1), np.inf
    for requests in demand:
        start = time.thread_time()
        policy.observe(requests)
        least = min(least, time.thread_time() - start)
    each = least / len(TREE.names) * 1e3
    return Goal("a slot for each node with 1,000 models, ms", each, 10.0, at_most=True)


def _shared() -> Goal:
    """Gain with sizes by marginal bytes, of the same policy and budget without sharing."""
    catalogue = shared(sentiment())
    ratios = {}
    for part in (0.05, 0.1, 0.2):
        budget = np.array([catalogue.alone.sum() * part])
        node = Network(("node",), (-1,), (40.0,), budget)
        demand = popular(len(catalogue), 1, 400, np.random.default_rng(1), rate=2000)
        gains = []
        for known in (catalogue, catalogue.ignoring_sharing()):
            market = Market(node, known)
            gains.append(simulate(_mirror(market), market, demand).gain)
        ratios[part] = gains[0] / gains[1]
    print("# shared bytes, by budget of all models' bytes:", ratios)
    return Goal("SA at a tenth of the bytes: gain of ignoring what is shared", ratios[0.1], 1.3)


# --- figures --------------------------------------------------------------------------------------


def figures() -> dict[str, str]:
    """Charts of the paper's kind, by name."""
    return {
        "gain": _over_time(),
        "inaccuracy": _over("inaccuracy", (10, 25, 50, 100, 200, 400), "cost of an error, ms"),
        "rate": _over("rate", (30, 100, 300, 1000), "requests a slot and base station"),
        "tiers": _tiers(),
        "loads": _loads(),
    }


def _policies(market: Market, demand: Demand) -> dict[str, PlacementPolicy]:
    return {
        "mirror": _mirror(market),
        "static greedy": Static(greedy(market, demand.mean)),
        "online greedy": OnlineGreedy(market, every=20),
        "OLAG": OLAG(market),
        "LRU": LRU(market),
    }


def _each(market: Market, demand: Demand) -> dict[str, Trace]:
    return {
        name: simulate(each, market, demand) for name, each in _policies(market, demand).items()
    }


def _over_time() -> str:
    demand = demand_of(TREE, SLIDES)
    traces = _each(market_of(TREE), demand)
    every = range(0, SLOTS, 20)
    lines = [
        Series(
            name,
            [
                (at, trace.gains[at : at + 20].mean() / demand.counts[at : at + 20].sum(1).mean())
                for at in every
            ],
        )
        for name, trace in traces.items()
    ]
    return chart("Gain of a request, sliding popularity", lines, Axis("slot"), Axis("ms"))


def _over(what: str, values: tuple[float, ...], title: str) -> str:
    lines: dict[str, list[tuple[float, float]]] = {}
    for value in values:
        market = market_of(CHAIN, **({what: value} if what == "inaccuracy" else {}))
        demand = demand_of(CHAIN, SLIDES, 400, value if what == "rate" else 300.0)
        for name, trace in _each(market, demand).items():
            lines.setdefault(name, []).append((value, trace.gain / demand.mean.sum()))
    series = [Series(name, points) for name, points in lines.items()]
    return chart("Gain of a request, chain", series, Axis(title, log=True), Axis("ms"))


def _tiers() -> str:
    """Where large and small models live."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for inaccuracy in (10.0, 25.0, 50.0, 100.0, 200.0, 400.0):
        market = market_of(CHAIN, inaccuracy=inaccuracy)
        policy = _mirror(market)
        simulate(policy, market, demand_of(CHAIN, slots=300))
        sizes = market.catalogue.sizes
        for tier, row in enumerate(policy.placement()):
            mean = float(sizes[row].mean()) if row.any() else 0.0
            lines.setdefault(f"tier {tier}", []).append((inaccuracy, mean))
    series = [Series(name, points) for name, points in lines.items()]
    return chart(
        "Size of the models on a node, chain",
        series,
        Axis("cost of an error, ms", log=True),
        Axis("size"),
    )


def _loads() -> str:
    ways: dict[str, dict[str, Any]] = {
        "every 4": {"refresh": 4},
        "every 8": {"refresh": 8},
        "every 16": {"refresh": 16},
        "dynamic": {"refresh": 1, "drift": 0.05},
        "new numbers, 8": {"refresh": 8, "coupled": False},
    }
    market, demand = market_of(TREE), demand_of(TREE, SLIDES, 400)
    series = [
        Series(
            name,
            list(enumerate(np.cumsum(simulate(_mirror(market, **way), market, demand).loads)))[::8],
        )
        for name, way in ways.items()
    ]
    return chart("Models loaded, by refresh of the rounding", series, Axis("slot"), Axis("loads"))
