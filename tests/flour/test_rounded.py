"""Outputs with few decimals, as numpy rounds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import flour
import oven
from flour.core.errors import ParameterError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4))
Y = np.where(X[:, 0] > 0, "yes", "no")
TEXTS = ["a b", "b c", "c d"] * 20


def program(name: str) -> tuple[flour.Flow, Any]:
    match name:
        case "probabilities":
            return flour.from_sklearn(LogisticRegression().fit(X, Y)), X
        case "float32":
            boosted = xgboost.XGBClassifier(n_estimators=5).fit(X, Y == "yes")
            return flour.from_sklearn(boosted), X.astype(np.float32)
        case "numbers":
            return flour.from_sklearn(RandomForestRegressor(5).fit(X, 1000 * X[:, 0])), X
        case "sparse":
            return flour.from_sklearn(TfidfVectorizer(token_pattern=r"\w").fit(TEXTS)), TEXTS
        case _:
            return flour.outputs(y=flour.scalar("x")), np.array([np.inf, -np.inf, np.nan, -0.0])


@pytest.mark.parametrize("decimals", [0, 2, 6])
@pytest.mark.parametrize("name", ["probabilities", "float32", "numbers", "sparse", "infinite"])
def test_it_rounds_as_numpy_does(name: str, decimals: int) -> None:
    made, rows = program(name)
    whole, short = oven.bake(made).run(rows), made.rounded(decimals)
    for found in (oven.bake(short).run(rows), short.reference(rows)):
        assert list(found) == list(whole)
        for output, values in found.items():
            wanted = whole[output]
            if not isinstance(wanted, np.ndarray):
                assert (values != wanted).nnz == 0  # sparse outputs are as they were
            elif wanted.dtype.kind != "f":
                assert np.array_equal(values, wanted)
            else:
                assert values.dtype == wanted.dtype
                np.testing.assert_array_equal(values, np.round(wanted, decimals))


@pytest.mark.parametrize("decimals", [-1, 16, 1.5, "2"])
def test_decimals_are_few(decimals: Any) -> None:
    with pytest.raises(ParameterError, match="decimals"):
        flour.outputs(y=flour.scalar("x")).rounded(decimals)
