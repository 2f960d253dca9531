"""Executors: twice as many do nearly twice as much."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

import flour
import oven
from runtime import Runtime
from scheduler import cores
from tests.runtime.bench.timing import least


@pytest.mark.bench
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.skipif(cores() < 2, reason="it takes two cores")
@pytest.mark.parametrize("rows", [40_000, 200_000])
def test_two_executors_and_one(benchmark: Any, rows: int) -> None:
    """The goal: 1.8 times for work of a millisecond and more; here it is 2 and 10."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(rows, 30))
    model = MLPClassifier((48, 16), max_iter=5).fit(data[:500], data[:500, 0] > 0)
    plan = oven.bake(flour.from_sklearn(model))
    with Runtime(executors=1) as one, Runtime(executors=2) as two:
        for each in (one, two):
            each.register("a", plan)
            for _ in range(5):
                each.predict("a", data, engine="batch")
        times = least(
            {
                "one": lambda: one.predict("a", data, engine="batch"),
                "two": lambda: two.predict("a", data, engine="batch"),
                "inline": lambda: one.predict("a", data, engine="inline"),
            },
            *(10, 3),
        )
        ratio = times["one"] / times["two"]
        benchmark.extra_info.update({"ratio": ratio, "one_ms": times["one"] * 1e3})
        benchmark.extra_info["inline_ms"] = times["inline"] * 1e3
        benchmark(two.predict, "a", data, engine="batch")
    assert times["one"] > 1e-3
    if os.getloadavg()[0] < 1.5 * cores():  # else others have the second core
        assert ratio > 1.4
