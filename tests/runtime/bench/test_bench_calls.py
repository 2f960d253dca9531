"""What a call costs besides the plan's own work."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
import pretzel
from runtime import Runtime
from tests.runtime.bench.timing import each, least, p99
from tests.runtime.plans import shift

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 20))


def fitted() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(X, X[:, 0] > 0)


@pytest.mark.bench
def test_a_row_by_name(benchmark: Any) -> None:
    """The goal: 1.5 us over the native call."""
    plan = oven.bake(flour.from_sklearn(fitted()))
    entry, row = plan.entry(), X[0].copy()
    with Runtime() as served:
        served.register("a", plan)
        times = least(
            {"entry": lambda: entry(row), "predict": lambda: served.predict("a", row)}, 20, 2000
        )
        over = times["predict"] - times["entry"]
        benchmark.extra_info.update({"over_us": over * 1e6, "entry_us": times["entry"] * 1e6})
        benchmark(served.predict, "a", row)
    assert over < 3e-6


@pytest.mark.bench
def test_a_row_through_the_drop_in(benchmark: Any) -> None:
    """The goal: 60 times faster than scikit-learn."""
    model = fitted()
    fast, row = pretzel.compile(model, verify=X), X[:1]
    times = least(
        {"sklearn": lambda: model.predict_proba(row), "drop-in": lambda: fast.predict_proba(row)},
        *(10, 200),
    )
    ratio = times["sklearn"] / times["drop-in"]
    benchmark.extra_info["faster"] = ratio
    benchmark(fast.predict_proba, row)
    assert ratio > 30


@pytest.mark.bench
def test_the_first_call_of_a_plan(benchmark: Any) -> None:
    """The goal: p99 of first calls at most 3 times that of later ones."""
    row = X[0].copy()
    with Runtime(result_bytes=0) as served:
        for n in range(1000):
            served.register(f"p{n}", shift(float(n), 20))
        names = [f"p{n}" for n in range(1000)]
        order = iter(names)
        cold = each(lambda: served.predict(next(order), row), 1000)
        orders = iter(names * 20)
        hot = each(lambda: served.predict(next(orders), row), 20_000)
        found = {"cold_p99_us": p99(cold) * 1e6, "hot_p99_us": p99(hot) * 1e6}
        benchmark.extra_info.update(found)
        benchmark(served.predict, "p0", row)
    assert p99(cold) < 6 * p99(hot)
