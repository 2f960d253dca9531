"""Trees over one-hot columns ask for the codes themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flour
import oven
from flour.language.flow import Flow, outputs
from flour.ops.categorise import Categorise
from flour.ops.encode import OneHot
from flour.ops.trees.trees import Trees
from oven.explain import explain
from oven.optimise.summary import expression
from tests import ensembles
from tests.rewrites import assert_declines, assert_means_the_same, traced, vector

pytestmark = pytest.mark.rules
RULE = "one_hot_into_trees"
#: How many one-hot columns each column of numbers has: of the last, two numbers have none.
STARTS = [0, 3, 5, 40]
WIDE = STARTS[-1]


def codes(x: Flow, *, unknown: int = -1, most: int = 35) -> Flow:
    """The codes of three columns of numbers."""
    runs = [[0, 1, 2], [0, 1], [*range(most - 2), -1, -1]]
    encode = Categorise(
        values=np.concatenate([np.arange(len(run)) - 1.0 for run in runs]),
        codes=np.concatenate(runs),
        starts=np.cumsum([0, *map(len, runs)]),
        missing=np.array([unknown, 1, unknown]),
        unknown=np.array([unknown, unknown, 3]),
    )
    return encode(x)


def hot(x: Flow | None = None, dtype: str = "float64", **how: int) -> Flow:
    """Forty columns of ones and zeros, stored sparsely."""
    return OneHot(np.array(STARTS), dtype)(codes(vector(3) if x is None else x, **how))


def trees(seed: int, width: int = WIDE, **how: Any) -> Trees:
    """Random trees that mostly ask what fitted trees ask of ones and zeros."""
    made = ensembles.sums(seed, trees=20, width=width, depth=5, **how)
    draw = np.random.default_rng(seed)
    limits = draw.choice([0.5, 0.5, 0.5, 0.0, 1.0, -0.5, 1.5], size=len(made.threshold))
    return made.replace(
        threshold=np.where(made.feature.array.astype(int) < WIDE, limits, made.threshold.array)
    )


def rows(seed: int = 0, width: int = 3, count: int = 200) -> Any:
    """Numbers that have codes, numbers that have none, and what is no number."""
    draw = np.random.default_rng(seed)
    odd = np.array([np.nan, 1.5, -7.0, 99.0, np.inf, -0.0])
    known = draw.integers(-2, 36, size=(count, width)) % draw.integers(2, 40, size=(1, width)) - 1.0
    return np.where(draw.random((count, width)) < 0.2, draw.choice(odd, (count, width)), known)


def example() -> Flow:
    """A program the rule applies to."""
    return trees(0)(hot())


def fires(flow: Flow, width: int = 3) -> Flow:
    """The rule applies, the ones are gone, and all answers are the same to the last bit."""
    found = traced(flow, RULE)
    assert found.fired == {RULE}, found.text()
    assert "OneHot" not in "".join(expression(item) for item in found.flow.outputs.values())
    assert_means_the_same(flow, found.flow, RULE)
    plan = oven.bake(found.flow, exact=True)
    for seed in range(3):
        X = rows(seed, width)
        want = flow.reference(X)
        for name in flow.outputs:
            np.testing.assert_array_equal(found.flow.reference(X)[name], want[name])
            np.testing.assert_array_equal(plan.run(X)[name], want[name])
            np.testing.assert_array_equal(plan.run(X[:1])[name], want[name][:1])
    return found.flow


@pytest.mark.parametrize("how", [{}, {"narrow": True}, {"strict": True}, {"zeros": True}], ids=str)
def test_it_fires(how: dict[str, Any]) -> None:
    fires(trees(0, **how)(hot()))
    fires(trees(1, **how)(hot().to_dense().cast("float32")))


def test_it_fires_for_leaves_and_for_several_ensembles() -> None:
    x = hot().to_dense()
    limits = trees(1).threshold.array
    leaves = ensembles.leaves(1, trees=20, width=WIDE, depth=5).replace(threshold=limits)
    fires(outputs(a=trees(0)(x), b=trees(1)(x), c=leaves(x)))


def test_it_fires_beside_other_columns() -> None:
    x = vector(6)
    numbers = x.select([3, 4, 5])
    for seed, beside in enumerate((numbers, numbers.cast("float32"), numbers.to_sparse())):
        flow = trees(seed, WIDE + 3, narrow=True)(hot(x.select([0, 1, 2])).concat(beside))
        fires(flow, 6)


@pytest.mark.parametrize("beside", [0, 3])
def test_it_fires_where_zeros_are_missing(beside: int) -> None:
    """What XGBoost makes of rows stored sparsely: a zero of any column is missing."""
    x = vector(3 + beside)
    whole = hot(x.select([0, 1, 2]))
    if beside:
        whole = whole.concat(x.select([3, 4, 5]).cast("float32"))
    flow = trees(beside, WIDE + beside, narrow=True, strict=True, absent=True)
    made = fires(flow(whole.cast("float32")), 3 + beside)
    assert not made.node.op.fields()["absent"]


def test_sets_and_thresholds_are_chosen_by_what_passes() -> None:
    """All but one code is a threshold at the ends, and a set in the middle."""
    x = codes(vector(3), unknown=2)  # no code is below zero
    made = Trees(
        feature=np.array([0, 1, 2, -1, -1, -1, -1], np.int32),
        threshold=np.full(7, 0.5),
        left=np.array([1, 2, 3, 0, 1, 2, 3], np.int32),
        right=np.array([6, 5, 4, 0, 0, 0, 0], np.int32),
        missing=np.zeros(7, np.uint8),
        roots=np.zeros(1, np.int32),
        target=np.zeros(1, np.int32),
        value=np.arange(4.0)[:, None],
        base=np.zeros(1),
    )
    found = fires(made(OneHot(np.array(STARTS))(x))).node.op
    assert isinstance(found, Trees)
    assert found.category.array[:3].tolist() == [-1, 0, -1]
    assert found.words.array.tolist() == [0b10]
    assert found.threshold.array[[0, 2]].tolist() == [0.0, 1.0]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([-1, 0, 2]), st.booleans())
def test_any_trees_over_any_codes(seed: int, unknown: int, narrow: bool) -> None:  # noqa: FBT001 (drawn)
    flow = trees(seed, narrow=narrow, sets=seed % 2 == 0)(hot(unknown=unknown))
    found = traced(flow, RULE)
    want = flow.reference(rows(seed))["output"]
    np.testing.assert_array_equal(found.flow.reference(rows(seed))["output"], want)


def test_it_declines() -> None:
    assert_declines(outputs(y=trees(0)(hot()), seen=hot()), RULE)
    assert_declines(trees(0)(OneHot(np.array(STARTS))(vector(3, "int64"))), RULE)
    assert_declines(trees(0)(vector(WIDE)), RULE)
    many = OneHot(np.array([0, 3, 5, 2000]))(codes(vector(3), most=1900))
    assert_declines(trees(0, 2000)(many), RULE)


def test_it_declines_where_some_codes_below_zero_pass() -> None:
    """A set has no codes below zero, and here two of them go different ways."""
    encode = codes(vector(3)).node.op.replace(missing=np.array([-2, -2, -2]))
    one = OneHot(np.array(STARTS))(encode(vector(3)))
    fires(trees(0)(one))
    shifted = OneHot(np.array(STARTS))(encode(vector(3))).to_dense() * 0.0
    assert_declines(trees(0)(shifted), RULE)


@pytest.mark.parametrize("sparse", [True, False])
def test_what_is_left_of_a_pipeline(*, sparse: bool) -> None:
    from sklearn.compose import make_column_transformer
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, StandardScaler

    draw = np.random.default_rng(0)
    X = draw.integers(0, 8, size=(400, 5)).astype(float)
    X[:, 3:] = draw.normal(size=(400, 2))
    encode = "onehot" if sparse else "onehot-dense"
    prepare = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=sparse), [0]),
        (OneHotEncoder(drop="first", sparse_output=sparse), [1]),
        (OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=60), [2]),
        (KBinsDiscretizer(5, encode=encode, strategy="uniform"), [3]),
        (StandardScaler(), [4]),
        sparse_threshold=1.0 if sparse else 0.0,
    )
    for last in (RandomForestClassifier(9, max_depth=7), GradientBoostingRegressor(n_estimators=9)):
        model = make_pipeline(prepare, last).fit(X, X[:, 0] + X[:, 3] > 4)
        plan = oven.bake(flour.from_sklearn(model))
        assert "OneHot" in explain(plan, "logical")
        assert "OneHot" not in explain(plan, "optimised")
        X[::5, 0], X[::7, 2] = 77.0, -3.5
        answer = getattr(model, "predict_proba", model.predict)(X)
        output = "probabilities" if answer.ndim == 2 else "value"
        np.testing.assert_array_equal(plan.run(X)[output].ravel(), answer.ravel())
        X[::5, 0], X[::7, 2] = 1.0, 2.0
