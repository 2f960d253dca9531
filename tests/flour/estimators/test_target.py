"""Models of a transformed target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import flour
import oven
from flour.core.errors import UnsupportedSetting
from tests.estimators import check

rng = np.random.default_rng(8)
X = rng.normal(size=(50, 3))
Y = np.exp(X @ [0.5, -0.25, 0.1]) + 0.1 * rng.random(50)
SIGNED = X @ [1.0, 2.0, -1.0] + rng.normal(size=50)
SEVERAL = np.stack([Y, SIGNED + 10, Y**2], axis=1)

TRANSFORMERS: dict[str, Any] = {
    "standard": StandardScaler(),
    "spread": StandardScaler(with_mean=False),
    "centred": StandardScaler(with_std=False),
    "range": MinMaxScaler((-1, 2)),
    "largest": MaxAbsScaler(),
    "robust": RobustScaler(),
    "yeo-johnson": PowerTransformer(),
    "yeo-johnson as it is": PowerTransformer(standardize=False),
    "box-cox": PowerTransformer(method="box-cox"),
    "chain": make_pipeline(FunctionTransformer(np.log1p, np.expm1), StandardScaler()),
}


@pytest.mark.parametrize("how", TRANSFORMERS)
def test_transformers(how: str) -> None:
    check(TransformedTargetRegressor(Ridge(), transformer=TRANSFORMERS[how]).fit(X, Y), X)
    if how != "chain":
        made = TransformedTargetRegressor(Ridge(), transformer=TRANSFORMERS[how])
        check(made.fit(X, np.abs(SEVERAL) + 0.1), X)


@pytest.mark.parametrize("how", ["yeo-johnson", "yeo-johnson as it is", "robust"])
def test_targets_of_both_signs(how: str) -> None:
    check(TransformedTargetRegressor(Ridge(), transformer=TRANSFORMERS[how]).fit(X, SIGNED), X)


@pytest.mark.parametrize(
    ("func", "inverse"),
    [
        (None, None),
        (np.log, np.exp),
        (np.log1p, np.expm1),
        (np.sqrt, np.square),
        (np.negative,) * 2,
    ],
    ids=["none", "log", "log1p", "sqrt", "negative"],
)
def test_functions(func: Any, inverse: Any) -> None:
    made = TransformedTargetRegressor(LinearRegression(), func=func, inverse_func=inverse)
    check(made.fit(X, Y), X)
    check(made.fit(X, SEVERAL[:, [0, 2]]), X)
    check(made.fit(X, Y[:, None]), X)


def test_exponents_at_their_limits() -> None:
    x = flour.vector("x", 4)
    program = x.undo_yeo_johnson([0.0, 2.0, 1.0, -0.5])
    rows = np.array([[0.5, 0.5, 0.5, 0.5], [-0.5, -0.5, -0.5, -0.5], [0.0, -0.0, np.nan, 1.0]])
    back = program.yeo_johnson([0.0, 2.0, 1.0, -0.5])
    np.testing.assert_allclose(back.reference(rows)["output"], rows, rtol=1e-14)
    np.testing.assert_allclose(
        oven.bake(program).run(rows)["output"], program.reference(rows)["output"], rtol=1e-14
    )


def test_other_inverses_are_refused() -> None:
    made = TransformedTargetRegressor(Ridge(), transformer=QuantileTransformer(n_quantiles=10))
    with pytest.raises(UnsupportedSetting, match="QuantileTransformer"):
        flour.from_sklearn(made.fit(X, Y))
    own = TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=lambda y: np.exp(y))  # noqa: PLW0108 (a function of the user's own)
    with pytest.raises(UnsupportedSetting):
        flour.from_sklearn(own.fit(X, Y))
