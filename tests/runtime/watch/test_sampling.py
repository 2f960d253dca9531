"""How much of the traffic is looked at: little traffic in full, much at a bounded cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

import flour
from flour.core.errors import ParameterError
from runtime import Runtime
from runtime.service.entry import SAMPLE
from runtime.watch.sampling import Sampling
from tests.runtime.conftest import Clock

DAY = 86_400.0


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    row = flour.record(age=float, income=float)
    with Runtime(executors=1) as made:
        made.register("m", flour.outputs(score=0.1 * row["age"] + row["income"]), background=False)
        yield made


def reference() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"age": rng.normal(40, 9, 3000), "income": rng.gamma(2, 20, 3000)})


def test_a_thousand_requests_a_day_show_a_drift_within_the_day(
    runtime: Runtime, clock: Clock
) -> None:
    rng = np.random.default_rng(1)
    with runtime.watch("m", reference=reference(), clock=clock) as watch:
        for _ in range(1000):
            clock.now += DAY / 1000
            runtime.predict("m", {"age": rng.normal(60, 9), "income": rng.gamma(2, 20)})
        watch.fold()
        first, second = watch.drift()
    assert (first.column, first.rows, first.alarms, second.alarms) == ("age", 1000, True, False)


@pytest.mark.parametrize("rows", [1, 3, 300])
def test_at_a_high_rate_the_cost_is_bounded(runtime: Runtime, clock: Clock, rows: int) -> None:
    block: Any = {"age": np.full(rows, 40.0), "income": np.ones(rows)}
    if rows == 1:
        block = {"age": 40.0, "income": 1.0}
    calls = 6400 if rows < 300 else 640
    options: dict[str, Any] = {"rows_a_minute": 600, "clock": clock, "segments": ("age",)}
    with runtime.watch("m", reference=reference(), **options) as watch:
        for _ in range(calls):
            runtime.predict("m", block)
        watch.fold()
        looked = watch.drift()[0].rows
        assert 600 <= looked <= 600 + 2 * rows + rows * calls / SAMPLE
        (cell,) = watch.cells()
        assert abs(cell.rows - calls * rows) <= 2 * SAMPLE * rows
        clock.now += 30.0  # half of the minute's rows may be looked at again
        watch.fold()
        watch.restart()
        for _ in range(calls):
            runtime.predict("m", block)
        watch.fold()
        again = watch.drift()[0].rows
        assert 300 <= again <= 300 + 2 * rows + rows * calls / SAMPLE
    assert (runtime.endpoints.find("m").entry.rest, runtime.endpoints.find("m").entry.watched) == (
        SAMPLE - 1,
        False,
    )


def test_short_blocks_are_seen(runtime: Runtime) -> None:
    with runtime.watch("m", reference=reference()) as watch:
        for _ in range(30):
            runtime.predict("m", {"age": np.full(300, 70.0), "income": np.ones(300)})
        watch.fold()
        first = watch.drift()[0]
    assert first.rows >= 1500
    assert first.alarms


@pytest.mark.parametrize("share", [1.0, 0.5, 0.3, 0.1, 0.01, 0.001])
def test_a_share_is_one_of_all_rows(runtime: Runtime, share: float) -> None:
    rows, calls = 20, 4000
    order = np.random.default_rng(0).permutation(calls).tolist()  # not in step with the sample
    with runtime.watch("m", reference=reference(), segments=("age",), sample=share) as watch:
        for number in order:
            if number % 2:
                runtime.predict("m", {"age": 40.0, "income": 1.0})
            else:
                columns = {"age": np.full(rows, 40.0), "income": np.ones(rows)}
                runtime.predict("m", columns, engine=(None, "inline")[number % 4 // 2])
        watch.fold()
        total = (rows + 1) * calls // 2
        off = 0 if share == 1 else 4 * (rows * rows * calls * share) ** 0.5 + 2 * rows
        assert abs(watch.drift()[0].rows - share * total) <= off
        assert abs(watch.cells()[0].rows - total) <= off / share


@pytest.mark.parametrize("share", [0.01, 0.1, 1.0])
def test_a_tap_has_its_share_of_rows(runtime: Runtime, share: float) -> None:
    runtime.register("v", flour.from_sklearn(_scaled()), background=False)
    with runtime.tap("v", "standardscaler", sample=share) as tap:
        for _ in range(6400):
            runtime.predict("v", [1.0, 2.0])
        tap.flush()
        assert abs(sum(len(each) for each in tap.ring) - min(1024, 6400 * share)) <= 2


def _scaled() -> Any:
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = np.random.default_rng(0).normal(size=(50, 2))
    return make_pipeline(StandardScaler(), LinearRegression()).fit(x, x[:, 0])


def test_a_clock_that_jumps_changes_little(clock: Clock) -> None:
    sampling = Sampling(None, 600, clock)
    for jump in (-1e9, 3.0, 1e12, -5.0, 0.0):
        clock.now += jump
        looked = [sampling.chosen(1, 1, by_entry=True)[0] is None for _ in range(2000)]
        assert sum(looked) <= 600
        assert sampling.rest == SAMPLE - 1


@pytest.mark.parametrize(
    "options",
    [
        {"sample": 0},
        {"sample": 1.5},
        {"sample": "all"},
        {"sample": float("nan")},
        {"rows_a_minute": -1},
        {"rows_a_minute": None},
        {"rows_a_minute": float("nan")},
    ],
)
def test_what_is_no_sample_is_refused(runtime: Runtime, options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=r"sample is a share|so many rows"):
        runtime.watch("m", **options)
    assert runtime.endpoints.find("m").watcher is None
