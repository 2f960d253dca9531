"""Options of minimal changes that do not fit are refused in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import flour
import oven
from flour.core.errors import FlourError
from oven.explain.counterfactuals import counterfactual

ROWS = pd.DataFrame({
    "age": np.linspace(20.0, 60.0, 30),
    "kids": np.arange(30) % 4,
    "city": ["Oslo", "Rome", "Graz"] * 10,
})  # fmt: skip
HOT = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
FIT = make_pipeline(HOT, LogisticRegression(max_iter=1000))
FIT.fit(ROWS, np.where(ROWS["age"] > 40, "yes", "no"))
PLAN = oven.bake(flour.from_sklearn(FIT, ROWS))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"want": "maybe"}, "no label"),
        ({"free": ["agee"]}, "did you mean 'age'"),
        ({"within": {"town": ["Oslo"]}}, "no such column"),
        ({"free": ["age"], "within": {"kids": (0, 2)}}, "may not change"),
        ({"within": {"age": (50, 20)}}, "no bounds"),
        ({"within": {"age": "old"}}, "no bounds"),
        *(({"within": {"city": each}}, "not a list") for each in ("Oslo", (1, 2), list[str]())),
        ({"within": {"age": []}}, "not a list"),
        ({"within": {"age": ["a", "b", "c"]}}, "no bounds"),
        *(({"most": each}, f"most={each}") for each in (0, 1.5, True)),
        *(({"seconds": each}, f"seconds={each!r}") for each in ("x", -1, float("nan"))),
        ({"seconds": np.array([1, 2])}, "seconds=array"),
        *(({name: 10**400}, f"{name}=1000") for name in ("most", "seconds")),
        *(({"within": {"city": each}}, "not a list") for each in (5, None)),
        *(({name: 5}, f"{name}=5") for name in ("free", "within")),
        ({"free": [["age"]]}, "free="),
        ({"want": np.array([1, 2])}, "no label"),
        ({"within": {"age": [10**400, 1]}}, "no bounds"),
        *(({"within": {name: (1e300, 1e308)}}, "too large") for name in ("age", "kids")),
        ({"within": {"kids": [1, 2, 2**70]}}, "too large"),
        ({"within": {"kids": [0.5, 1.5, 2]}}, "whole numbers alone"),
    ],
)
def test_errors_say_what_is_wrong(options: dict[str, Any], said: str) -> None:
    """With what was found, and a hint."""
    with pytest.raises(FlourError, match=said):
        counterfactual(PLAN, ROWS[:1], **{"want": "yes", **options})


def test_bounds_may_be_far_apart() -> None:
    want = {"yes": "no", "no": "yes"}[FIT.predict(ROWS[:1])[0]]
    made = counterfactual(PLAN, ROWS[:1], want=want, within={"age": (-1e30, 1e30)})
    assert made.found
