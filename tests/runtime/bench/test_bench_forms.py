"""What calls cost with the data that people have: frames, lists of dicts, rows for the drop-in."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import flour
import oven
import pretzel
from runtime import Runtime

RNG = np.random.default_rng(0)
ROWS = 10_000
NAMES = [f"column_{place}" for place in range(20)]
NUMBERS = pd.DataFrame(RNG.normal(size=(ROWS, 20)), columns=NAMES)
MIXED = NUMBERS.copy()
for place, column in enumerate(NAMES):
    if place % 4:
        digits = RNG.integers(0, 9, ROWS)
        cities = np.array(["Graz", "Cork", "Rome"], object)[digits % 3]
        MIXED[column] = (digits, digits > 3, cities)[place % 4 - 1]
LIBRARIES: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "Arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


def fitted(frame: Any) -> Any:
    texts = NAMES[3::4] if frame is MIXED else []
    numbers = [name for name in NAMES if name not in texts]
    first = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), texts))
    return make_pipeline(first, LogisticRegression()).fit(frame, NUMBERS["column_0"] > 0)


def least(turns: int, calls: int, *functions: Callable[[], object]) -> list[float]:
    """Microseconds of this thread that each takes in the best of some turns."""
    found = [float("inf")] * len(functions)
    for _ in range(turns):
        for place, function in enumerate(functions):
            start = time.thread_time_ns()
            for _ in range(calls):
                function()
            took = (time.thread_time_ns() - start) / calls / 1000
            found[place] = min(found[place], took)
    return found


def ways(model: Any, frame: Any, served: Runtime) -> dict[str, Callable[[Any], object]]:
    plan = oven.bake(flour.from_sklearn(model, frame.head(20)))
    served.register("m", plan)
    return {
        "plan.run": plan.run,
        "drop-in": pretzel.compile(model, frame.head(20)).predict_proba,
        "Runtime.predict": partial(served.predict, "m"),
    }


@pytest.mark.bench
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("frame", "most"), [(NUMBERS, 40), (MIXED, 80)], ids=["float", "mixed"])
def test_frames(benchmark: Any, library: str, frame: Any, most: float) -> None:
    """The goals: one row in 40 us, or 80 of mixed types; 10,000 rows as fast as their arrays."""
    make = LIBRARIES[library]
    one, many = make(frame.head(1)), make(frame)
    arrays = {name: np.asarray(frame[name].to_numpy()) for name in NAMES}
    with Runtime(executors=1) as served:
        for name, call in ways(fitted(frame), frame, served).items():
            (row,) = least(200, 10, partial(call, one))
            frames, block = least(10, 1, partial(call, many), partial(call, arrays))
            benchmark.extra_info.update({f"{name}_us": row, f"{name}_ratio": frames / block})
            assert row < 2 * most
            assert frames < 2 * block
        benchmark(served.predict, "m", one)


@pytest.mark.bench
@pytest.mark.parametrize("frame", [NUMBERS, MIXED], ids=["float", "mixed"])
def test_a_list_of_dicts(benchmark: Any, frame: Any) -> None:
    """The goal: 100 dicts of 20 values in 60 us."""
    rows = frame.head(100).to_dict("records")
    with Runtime(executors=1) as served:
        for name, call in ways(fitted(frame), frame, served).items():
            (took,) = least(100, 5, partial(call, rows))
            benchmark.extra_info[f"{name}_us"] = took
            assert took < 120
        benchmark(served.predict, "m", rows)


@pytest.mark.bench
def test_an_array_of_one_row(benchmark: Any) -> None:
    """The goal: twice the time of the plan's entry, through the drop-in and `plan.run`."""
    values = NUMBERS.to_numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(values, values[:, 0] > 0)
    fast, row = pretzel.compile(model), values[:1].copy()
    plan = oven.bake(flour.from_sklearn(model))
    entry, alone = plan.entry(), oven.bake(flour.from_sklearn(model)["probabilities"]).entry()
    plan.run(row)
    took = least(
        *(100, 1000),
        *(lambda: entry(row), lambda: plan.run(row)),
        *(lambda: alone(row), lambda: fast.predict_proba(row)),
    )
    benchmark.extra_info.update(zip(("entry", "run", "alone", "drop-in"), took, strict=True))
    benchmark(fast.predict_proba, row)
    assert took[1] < 3 * took[0]
    assert took[3] < 3 * took[2]
