"""Encoders for one column each are one encoder for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, OrdinalEncoder, StandardScaler

import flour
import oven
from flour.language.flow import Flow
from tests.rewrites import assert_declines, assert_fires, vector

pytestmark = pytest.mark.rules
RULE = "join_tables"


def bins(flow: Flow, *edges: float) -> Flow:
    """The bin of one column."""
    return flow.bins(np.array(edges), np.array([0, len(edges)]))


def example() -> Flow:
    """A program the rule applies to."""
    x, y = vector(1), vector(1, name="y")
    return bins(x, 0.0, 1.0).concat(bins(y, -1.0))


def test_it_fires() -> None:
    assert_fires(example(), RULE, "Bins[3, {0 2 3}](Concat(x, y))")


def test_it_fires_for_neighbours() -> None:
    x, y = vector(1), vector(1, name="y")
    flow = bins(x, 0.0).concat(bins(y, -1.0), vector(2, "int64", name="z"))
    assert_fires(flow, RULE, "Concat(Bins[2, {0 1 2}](Concat(x, y)), z)")


def test_it_declines_other_widths_and_other_readers() -> None:
    x, narrow = vector(1), vector(1, "float32", name="y")
    assert_declines(bins(x, 0.0).concat(bins(narrow, -1.0)), RULE)
    shared = bins(x, 0.0)
    both = shared.concat(bins(vector(1, name="y"), 1.0), shared.cast("int64"))
    assert_declines(both.concat(shared), RULE)


def rows(columns: int) -> pd.DataFrame:
    """Letters in the first columns, numbers in the others."""
    rng = np.random.default_rng(20)
    letters = {f"a{j}": rng.choice(list("abcdef")[: 2 + j % 4], 60) for j in range(columns)}
    return pd.DataFrame({**letters, **{f"b{j}": rng.normal(size=60) for j in range(columns)}})


def prepared(columns: int) -> tuple[ColumnTransformer, pd.DataFrame]:
    """A transformer with a step for each column."""
    x = rows(columns)
    steps: dict[str, Any] = {
        "h": lambda: OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        "o": lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        "n": lambda: make_pipeline(SimpleImputer(), StandardScaler()),
        "k": lambda: KBinsDiscretizer(
            3, encode="onehot-dense", quantile_method="averaged_inverted_cdf"
        ),
    }
    made = [
        (f"{kind}{j}", step(), [f"{'a' if kind in 'ho' else 'b'}{j}"])
        for kind, step in steps.items()
        for j in range(columns)
    ]
    return ColumnTransformer(made).fit(x), x


def test_a_step_for_each_column_is_as_much_code_for_ten_as_for_two() -> None:
    sizes = []
    for columns in (2, 10):
        transformer, x = prepared(columns)
        # Checks for missing values are made column by column.
        plan = oven.bake(flour.from_sklearn(transformer), exact=True, on_missing="answer")
        made = next(iter(plan.run(x.iloc[:7]).values()))
        np.testing.assert_array_equal(made, transformer.transform(x.iloc[:7]))
        sizes.append(sum(stage.source.count("\n") for stage in plan.program.stages))
    assert sizes[1] <= 1.1 * sizes[0]


def test_it_declines_one_input_beside_itself() -> None:
    x = vector(2)
    assert_declines(x.concat(x), RULE)
