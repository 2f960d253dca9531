"""Placement of models: the projection, the rounding, the gain, the policy and its baselines."""

from __future__ import annotations

import numpy as np
import pytest

from bench.placement import (
    CHAIN,
    LRU,
    OLAG,
    TREE,
    Catalogue,
    DependentRounding,
    Market,
    MirrorAscent,
    Network,
    OnlineGreedy,
    Static,
    alternating,
    greedy,
    popular,
    project,
    shared,
    simulate,
    variants,
)
from bench.placement.network import Numbers
from runtime.errors import ClusterError


def _instance(generator: np.random.Generator) -> tuple[Numbers, Numbers, float]:
    count = int(generator.integers(1, 60))
    wanted = np.exp(generator.normal(0, generator.uniform(0.1, 8), count))
    sizes = np.exp(generator.normal(0, 1, count))
    return wanted, sizes, float(sizes.sum() * generator.uniform(0.01, 1.2))


def test_projections_meet_the_conditions_of_the_optimum() -> None:
    generator = np.random.default_rng(0)
    for _ in range(10_000):
        wanted, sizes, budget = _instance(generator)
        y = project(wanted, sizes, budget)
        assert np.all((y >= 0) & (y <= 1))
        if sizes.sum() <= budget:
            assert np.all(y == 1)
            continue
        assert abs(sizes @ y - budget) <= 1e-9 * budget
        # One multiplier: y / wanted is the same where 0 < y < 1, and no more where y is cut off.
        factors, inside = y / wanted, y < 1
        if inside.any():
            multiplier = factors[inside].max()
            assert np.all(np.abs(factors[inside] / multiplier - 1) <= 1e-9)
            assert np.all(factors[~inside] <= multiplier * (1 + 1e-9))


def test_rounding_keeps_marginals_and_bytes() -> None:
    generator, draws = np.random.default_rng(0), 100_000
    y = project(generator.uniform(0.1, 1, 12), np.ones(12), 5.0)
    rounding = DependentRounding(draws, 12, generator)
    whole = rounding(np.tile(y, (draws, 1)), np.ones((draws, 12)))
    assert np.all(whole.sum(axis=1) == 5)
    sigma = np.sqrt(y * (1 - y) / draws)
    assert np.all(np.abs(whole.mean(axis=0) - y) <= 3 * sigma + 1e-12)


def test_rounding_of_unequal_sizes_is_off_by_one_model_at_most() -> None:
    generator, draws = np.random.default_rng(1), 100_000
    sizes = np.array([1.0, 2, 3, 5, 8, 13, 2, 4])
    y = project(generator.uniform(0.1, 1, 8), sizes, 17.0)
    whole = DependentRounding(draws, 8, generator)(
        np.tile(y, (draws, 1)), np.tile(sizes, (draws, 1))
    )
    assert np.all(np.abs(whole @ sizes - 17) < 13)
    sigma = np.sqrt(y * (1 - y) / draws)
    assert np.all(np.abs(whole.mean(axis=0) - y) <= 3 * sigma + 1e-12)


def test_small_changes_of_probabilities_reload_little() -> None:
    generator = np.random.default_rng(0)
    sizes = np.ones((200, 64))
    before = generator.uniform(0.2, 0.8, (200, 64))
    after = np.clip(before + generator.normal(0, 1e-3, before.shape), 0, 1)
    kept, drawn = DependentRounding(200, 64, generator), DependentRounding(200, 64, generator)
    first = kept(before, sizes)
    coupled = np.mean(first != kept(after, sizes))
    drawn.refresh()
    assert coupled < 0.05
    assert np.mean(first != drawn(after, sizes)) > 0.2


def _small() -> Market:
    network = Network(("edge", "cloud"), (1, -1), (10.0, 50.0), np.array([3.0, 6.0]))
    catalogue = Catalogue(
        np.array([0, 0, 1, 1]),
        np.array([1.0, 2.0, 1.0, 3.0]),
        np.array([1.0, 4.0, 1.0, 5.0]),
        np.array([0.5, 0.9, 0.5, 0.8]),
        np.array([0, 2]),
    )
    return Market(network, catalogue, capacity=5.0)


def test_the_gain_is_what_requests_save_one_by_one() -> None:
    market, generator = _small(), np.random.default_rng(0)
    for _ in range(50):
        placement = generator.random(market.shape) < 0.5
        requests = generator.integers(0, 12, 2).astype(float)
        saved = 0.0
        for row, asked in enumerate(requests):
            left = asked
            for cost, place in zip(market.costs[row], market.places[row], strict=True):
                if place >= 0 and placement.ravel()[place]:
                    taken = min(left, 5.0)
                    saved, left = saved + taken * (market.default[row] - cost), left - taken
        assert market.gain(placement, requests) == pytest.approx(saved)


def test_the_gradient_is_above_every_step_of_the_gain() -> None:
    market, generator = _small(), np.random.default_rng(0)
    for _ in range(200):
        here, there = generator.random((2, *market.shape))
        requests = generator.integers(0, 12, 2).astype(float)
        slope = (market.gradient(here, requests) * (there - here)).sum()
        rise = market.gain(there, requests) - market.gain(here, requests)
        assert rise <= slope + 1e-9


@pytest.mark.parametrize("kind", ["fixed", "sliding"])
def test_the_policy_is_near_greedy_in_hindsight(kind: str) -> None:
    market = Market(CHAIN, variants(10, np.random.default_rng(0), (100.0, 300.0)))
    demand = popular(10, 1, 300, np.random.default_rng(1), every=30 if kind == "sliding" else None)
    still = simulate(Static(greedy(market, demand.mean)), market, demand)
    ours = simulate(MirrorAscent(market, np.random.default_rng(2)), market, demand)
    assert ours.gain >= 0.95 * still.gain
    assert ours.loads_a_slot <= 2
    for policy in (LRU(market), OLAG(market), OnlineGreedy(market)):
        assert simulate(policy, market, demand).gain > 0


def test_an_adversary_defeats_what_follows() -> None:
    node = Network(("node",), (-1,), (40.0,), np.array([1.0]))
    market = Market(node, shared({"a": {"p": 1}, "b": {"q": 1}}))
    demand = alternating(200)
    ours = simulate(MirrorAscent(market, np.random.default_rng(0)), market, demand).gain
    assert ours >= 5 * simulate(OLAG(market), market, demand).gain
    assert ours == pytest.approx(0.5 * 100 * 40, rel=0.02)


@pytest.mark.parametrize("sharing", [False, True])
def test_no_node_has_more_than_its_budget(*, sharing: bool) -> None:
    generator = np.random.default_rng(0)
    if sharing:
        parts = {
            f"m{n}": {f"own{n}": 5, f"part{n % 3}": 40, f"other{n % 5}": 30} for n in range(40)
        }
        catalogue = shared(parts)
        network = Network(("node",), (-1,), (40.0,), np.array([170.0]))
    else:
        catalogue, network = variants(12, generator, (50.0, 200.0, 400.0)), TREE
    market = Market(network, catalogue)
    demand = popular(len(catalogue.defaults), len(network.leaves), 30, generator)
    for policy in (
        MirrorAscent(market, generator, refresh=1),
        OLAG(market),
        LRU(market),
        OnlineGreedy(market),
    ):
        for requests in demand:
            placement = policy.placement()
            for chosen, budget in zip(placement, network.budgets, strict=True):
                assert catalogue.bytes_of(chosen) <= budget * (1 + 1e-12)
            policy.observe(requests)


def test_shared_bytes_count_once_on_a_node() -> None:
    catalogue = shared({"a": {"x": 10, "s": 100}, "b": {"y": 20, "s": 100}, "c": {"z": 5}})
    assert catalogue.alone.tolist() == [110, 120, 5]
    assert catalogue.bytes_of(np.array([True, True, False])) == 130
    assert catalogue.added(1, np.array([True, False, False])) == 20
    assert catalogue.shares(np.ones((1, 3)))[0].tolist() == [60, 70, 5]


def test_a_network_is_a_tree() -> None:
    assert (len(TREE.names), len(TREE.leaves), len(CHAIN.names)) == (30, 24, 5)
    assert CHAIN.path(0)[-1] == (4, 67.0)
    with pytest.raises(ClusterError, match="before its parent"):
        Network(("a", "b"), (-1, 0), (1.0, 1.0), np.ones(2))
