"""Ahead of a step that cuts at fitted values, which rows are often exactly on, bits are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA, FactorAnalysis, SparsePCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OrdinalEncoder,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.random_projection import SparseRandomProjection
from sklearn.tree import DecisionTreeRegressor

import flour
import oven
from oven.optimise.pattern import BITS
from oven.optimise.rewrite import trace

RNG = np.random.default_rng(5)
X = RNG.integers(0, 4, (120, 4)).astype(float)
Y = X @ [1.0, 2, 3, 4]

BEFORE: dict[str, Any] = {
    "whitened": PCA(3, whiten=True),
    "factors": FactorAnalysis(2),
    "scaled": make_pipeline(StandardScaler(), PCA(3)),
    "twice": make_pipeline(PCA(whiten=True), PCA(3)),
    "scalers": make_pipeline(MinMaxScaler(), StandardScaler(), RobustScaler()),
    "classes": make_pipeline(StandardScaler(), LinearDiscriminantAnalysis()),
}
CUTS: dict[str, Any] = {
    "bins": KBinsDiscretizer(5, encode="ordinal", strategy="uniform"),
    "steps": SplineTransformer(5, degree=0),
    "quantiles": QuantileTransformer(n_quantiles=20),
    "threshold": Binarizer(threshold=0.0),
    "codes": OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    "boosting": HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=5),
    "nearest": KNeighborsRegressor(1),
}


def unkept(fitted: Any) -> set[str]:
    """The rules that moved numbers by rounding."""
    fired = trace(flour.from_sklearn(fitted)).firings
    return {each.rule.name for each in fired if each.rule.preserves is not BITS}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("before", BEFORE)
def test_order_is_kept_ahead_of_cuts(before: str, cut: str) -> None:
    target = (Y > 15).astype(int) + (Y > 20)
    assert not unkept(make_pipeline(BEFORE[before], CUTS[cut]).fit(X, target))


@pytest.mark.rules
@pytest.mark.parametrize(
    ("before", "last"),
    [(name, LinearRegression()) for name in BEFORE]
    + [(name, DecisionTreeRegressor()) for name in ("factors", "classes")],
)
def test_and_nowhere_else(before: str, last: Any) -> None:
    """Trees of scikit-learn's are cut halfway between training values."""
    target = (Y > 15).astype(int) + (Y > 20)
    assert unkept(make_pipeline(BEFORE[before], last).fit(X, target))


@pytest.mark.rules
@pytest.mark.parametrize(("beyond", "kept"), [("nan", True), ("clip", False)])
def test_a_curve_cuts_where_it_ends(beyond: str, kept: bool) -> None:  # noqa: FBT001 (a case)
    steps = (StandardScaler(), PCA(1), IsotonicRegression(out_of_bounds=beyond))
    assert kept != bool(unkept(make_pipeline(*steps).fit(X, Y)))


@pytest.mark.rules
def test_what_reaches_no_cut_is_fused() -> None:
    """One reader of the scaled columns cuts them, the other sums them up."""
    x = flour.vector("x", 4)
    sums = x.linear(np.ones((2, 4)), [])
    apart = flour.outputs(
        bins=sums.divide([3.0]).bins([0.5, 1.0], [0, 1, 2]),
        sums=x.linear(np.full((2, 4), 2.0), []).subtract([0.5]).linear(np.ones((1, 2)), []),
    )
    fired = trace(apart)
    assert "affine_after_linear" in fired.fired or "linear_into_linear" in fired.fired
    kinds = [item.op.name for item in fired.flow["bins"].nodes()]
    assert kinds == ["Source", "Linear", "Divide", "Bins"]


@pytest.mark.parametrize("exact", [False, True])
def test_rows_on_an_edge_stay_in_their_bin(*, exact: bool) -> None:
    """Sums of whole numbers are exact everywhere, so that the division alone decides."""
    weights, scale = np.array([[1.0, 2, 3, 4], [4.0, 0, 1, 2]]), np.array([0.3, 0.7])
    edges = [np.unique(column) for column in (X @ weights.T / scale).T]
    starts = [0, len(edges[0]), len(edges[0]) + len(edges[1])]
    flow = flour.vector("x", 4).linear(weights, []).divide(scale).bins(np.hstack(edges), starts)
    plan, want = oven.bake(flow, exact=exact).wait(), flow.reference(X)["output"]
    np.testing.assert_array_equal(plan.run(X)["output"], want)
    for place in range(20):
        np.testing.assert_array_equal(plan.run(X[place : place + 1])["output"][0], want[place])


INEXACT: dict[str, Any] = {
    "powers": PowerTransformer(),
    "logarithms": FunctionTransformer(np.log1p),
    "sparse components": SparsePCA(2, alpha=0.1, random_state=0),
    "sparse projection": SparseRandomProjection(3, random_state=0),
    "shares": Normalizer("l1"),
}


@pytest.mark.parametrize("name", INEXACT)
def test_what_holds_ahead_of_a_cut_where_bits_do_not(name: str) -> None:
    """A few units in the last place, by which a row on an edge may go to the other side."""
    fitted = INEXACT[name].fit(X + 0.1)
    made = oven.bake(flour.from_sklearn(fitted)).wait().run(X + 0.1)["features"]
    want = fitted.transform(X + 0.1)
    want = want.toarray() if hasattr(want, "toarray") else want
    ends = np.abs(want).max(axis=0)
    assert np.abs(made - want).max() <= 64 * np.finfo(np.float64).eps * ends.max()
