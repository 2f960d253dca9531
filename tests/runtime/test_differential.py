"""Random pipelines over mixed frames answer and refuse as the originals do, in every form of rows.

The soak has a million rows over three hundred pipelines; the short run is the beginning of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_regressor
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import flour
import oven
from runtime.verify import compare

Make = Callable[[], Any]
NUMBERS: list[Make] = [
    *(StandardScaler, RobustScaler, MaxAbsScaler, PowerTransformer, PolynomialFeatures),
    *(Normalizer, SimpleImputer, lambda: "passthrough", lambda: MinMaxScaler(clip=True)),
    *(lambda: QuantileTransformer(n_quantiles=20), lambda: KBinsDiscretizer(4)),
    lambda: SplineTransformer(extrapolation="constant"),
    lambda: make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()),
]
TEXTS: list[Make] = [
    *(OrdinalEncoder, TargetEncoder, lambda: OneHotEncoder(drop="first")),
    lambda: OneHotEncoder(min_frequency=3, handle_unknown="infrequent_if_exist"),
    lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    lambda: make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
    ),
]
MODELS: list[Make] = [
    *(LogisticRegression, RidgeClassifier, Ridge, GaussianNB, LinearSVC, SVC),
    *(lambda: RandomForestClassifier(5, max_depth=4), lambda: RandomForestRegressor(4)),
    *(lambda: GradientBoostingClassifier(n_estimators=4), lambda: ExtraTreesClassifier(5)),
    *(lambda: HistGradientBoostingClassifier(max_iter=4), DecisionTreeClassifier),
    lambda: make_pipeline(SelectKBest(k=2), LogisticRegression()),
]


def frame(rng: np.random.Generator, rows: int, *, holes: bool, odd: bool) -> pd.DataFrame:
    """Columns of every kind; with missing values, and with infinities and huge numbers."""
    made = pd.DataFrame(
        {
            "a": rng.normal(size=rows) * 3,
            "b": rng.integers(-3, 4, rows),
            "c": rng.normal(size=rows).astype("float32"),
            "d": rng.random(rows) < 0.5,
            "s": pd.Series(rng.choice(["x", "y", "zz", "é"], rows), dtype=object),
            "t": pd.Series(rng.choice(["u", "v"], rows), dtype=object),
        }
    )
    if holes:
        made.loc[rng.random(rows) < 0.2, "a"] = np.nan
        made.loc[rng.random(rows) < 0.2, "s"] = None
    if odd:
        made.loc[rng.random(rows) < 0.05, "a"] = np.inf
        made.loc[rng.random(rows) < 0.05, "c"] = 1e18  # its square is a float32, too
    return made


def pick(rng: np.random.Generator, makes: list[Make]) -> Any:
    """One of them, made."""
    return makes[rng.integers(len(makes))]()


def pipeline(rng: np.random.Generator, train: pd.DataFrame) -> tuple[Any, pd.DataFrame] | None:
    """A fitted pipeline and what it was fitted on; None where the library refuses to fit it."""
    numbers = [str(name) for name in rng.permutation(["a", "b", "c", "d"])][: rng.integers(1, 5)]
    texts = [str(name) for name in rng.permutation(["s", "t"])][: rng.integers(0, 3)]
    cut = rng.integers(1, len(numbers) + 1)
    parts = [(pick(rng, NUMBERS), numbers[:cut])]
    parts += [(pick(rng, NUMBERS), numbers[cut:])] if numbers[cut:] else []
    parts += [(pick(rng, TEXTS), texts)] if texts else []
    model, dense = pick(rng, MODELS), float(rng.integers(2))
    made = make_pipeline(make_column_transformer(*parts, sparse_threshold=dense), model)
    labels = np.array([["no", "yes", "maybe"], ["0", "1", "1"]][rng.integers(2)])
    target = rng.normal(size=len(train)) if is_regressor(model) else rng.choice(labels, len(train))
    rows = train[[str(name) for name in rng.permutation([*numbers, *texts])]]
    try:
        return made.fit(rows, target), rows
    except (ValueError, TypeError):
        return None


def forms(rows: pd.DataFrame) -> Iterator[tuple[str, Any, pd.DataFrame]]:
    """The rows in every form, and some of them alone: what it is called, the data, the frame."""
    values = rows.astype(object).to_numpy().tolist()
    yield "a frame", rows, rows
    yield "a dict of lists", {name: rows[name].tolist() for name in rows}, rows
    yield "dicts", [dict(zip(rows, row, strict=True)) for row in values], rows
    yield "lists", values, rows
    for place in range(6):
        one = rows.iloc[[place]]
        yield "a dict", dict(zip(rows, values[place], strict=True)), one
        yield "a list", values[place], one
        yield "a series", rows.iloc[place], one
        yield "a frame of one row", one, one


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns; None where it refuses its data."""
    try:
        return call()
    except (ValueError, TypeError):
        return None


def hold(seed: int, rows: int) -> int:
    """Hold one random pipeline to its original; how many rows were compared."""
    rng = np.random.default_rng(seed)
    holes = bool(rng.integers(2))
    fitted = pipeline(rng, frame(rng, 80, holes=holes, odd=False))
    if fitted is None:
        return 0
    original, sample = fitted
    plan = oven.bake(flour.from_sklearn(original, sample), background=False)
    output = "value" if "value" in plan.outputs else "label"
    entry, compared = plan.entry(), 0
    for gaps, odd in ((holes, False), (True, False), (True, True)):
        data = frame(rng, rows, holes=gaps, odd=odd)[list(sample)]
        for form, given, as_frame in forms(data):
            want = outcome(lambda as_frame=as_frame: original.predict(as_frame))  # type: ignore[misc]  # bound here
            for way in (entry, plan.run) if len(as_frame) == rows else (entry,):
                got = outcome(lambda way=way, given=given: way(given))  # type: ignore[misc]  # bound here
                where = f"seed {seed}, {form}, gaps {gaps}, odd {odd}, {original}"
                assert (got is None) == (want is None), where
                if want is not None:
                    answers = (
                        got if isinstance(got, dict) else dict(zip(plan.outputs, got, strict=True))
                    )
                    bad = compare(output, np.atleast_1d(answers[output]), want, 1e-6)
                    assert bad is None, f"{where}: {bad}"
                compared += len(as_frame)
    return compared


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(6))
def test_random_pipelines_answer_as_the_originals(seed: int) -> None:
    hold(seed, 40)


@pytest.mark.soak
def test_a_million_rows_of_random_pipelines() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sum(hold(seed, 200) for seed in range(300)) > 1_000_000


@pytest.mark.parametrize("scaler", [QuantileTransformer(n_quantiles=9), MaxAbsScaler()])
def test_missing_numbers_that_a_step_passes_on_are_refused_by_the_next(scaler: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    program = flour.from_sklearn(make_pipeline(scaler, Ridge()).fit(rows, rows[:, 0]))
    with pytest.raises(ValueError, match="Ridge refuses NaN"):
        program.plan().run([[1.0, np.nan]])


def test_trees_over_sparse_rows_refuse_missing_numbers() -> None:
    """Over dense ones they take them."""
    rows = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0] * 9, "s": ["x", "y", "z", "x"] * 9})
    for threshold in (0.0, 1.0):
        columns = make_column_transformer(
            ("passthrough", ["a"]), (OneHotEncoder(), ["s"]), sparse_threshold=threshold
        )
        original = make_pipeline(columns, DecisionTreeClassifier()).fit(rows, rows["s"])
        row = pd.DataFrame({"a": [np.nan], "s": ["x"]})
        want = outcome(lambda: original.predict(row))  # noqa: B023 (called at once)
        got = outcome(lambda: flour.from_sklearn(original, rows).plan().run(row))  # noqa: B023 (called at once)
        assert (want is None) == (got is None) == (threshold == 1.0)
