"""A refused row is blamed on the step that refuses it in the original, and on the user's column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC

import flour
import oven
from flour.core.errors import InputError

FRAME = pd.DataFrame(np.abs(np.random.default_rng(0).normal(size=(60, 3))) + 0.5, columns=[*"abc"])
TARGET = (FRAME["a"] > 1.0).astype(int)
SCALERS = (StandardScaler, RobustScaler, MinMaxScaler, MaxAbsScaler)


def two(first: Any, second: Any) -> Any:
    return make_column_transformer((first, ["a"]), (second, ["b"]), remainder="passthrough")


def forest() -> Any:
    return RandomForestClassifier(3, random_state=0)


MODELS: dict[str, Any] = {
    **{f"{each.__name__}, forest": make_pipeline(each(), forest()) for each in SCALERS},
    **{f"{each.__name__}, SVC": make_pipeline(each(), SVC()) for each in SCALERS},
    "two scalers": make_pipeline(RobustScaler(), StandardScaler(), ExtraTreesClassifier(3)),
    "imputer": make_pipeline(SimpleImputer(), StandardScaler(), forest()),
    "imputer, lines": make_pipeline(SimpleImputer(), LogisticRegression()),
    "checks": make_pipeline(
        FunctionTransformer(np.negative, validate=True), KNeighborsClassifier(3)
    ),
    "boosting": make_pipeline(MinMaxScaler(), GradientBoostingClassifier(n_estimators=3)),
    "histograms": make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=3)),
    "box-cox": make_pipeline(PowerTransformer("box-cox"), forest()),
    "box-cox, lines": make_pipeline(PowerTransformer("box-cox"), LogisticRegression()),
    "johnson": make_pipeline(PowerTransformer(), StandardScaler(), LogisticRegression()),
    "quantiles": make_pipeline(QuantileTransformer(n_quantiles=9), SVC()),
    "columns": make_pipeline(two(StandardScaler(), RobustScaler()), forest()),
    "columns, lines": make_pipeline(two(MinMaxScaler(), SimpleImputer()), LogisticRegression()),
    "columns, box-cox": make_pipeline(two(RobustScaler(), PowerTransformer("box-cox")), SVC()),
    "column twice": make_pipeline(
        ColumnTransformer([("x", MinMaxScaler(), ["b", "c"]), ("y", SimpleImputer(), ["b", "a"])]),
        forest(),
    ),
}
VALUES = {"NaN": np.nan, "infinity": -np.inf, "negative": -1.0, "large": 1e39, "huge": 1e300}


def steps(model: Any, x: Any) -> Iterator[tuple[Any, Any]]:
    """Each step with what it is given, as long as none refuses it."""
    for _, step in model.steps:
        if isinstance(step, ColumnTransformer):
            yield from ((inner, x[columns]) for _, inner, columns in step.transformers_)
        else:
            yield step, x
        x = step.transform(x) if hasattr(step, "transform") else x


def refusing(model: Pipeline, x: Any) -> str:
    """The name of the step that refuses rows; empty if none does."""
    for step, given in steps(model, x):
        try:
            (step.transform if hasattr(step, "transform") else step.predict)(given)
        except ValueError:
            return type(step).__name__
    return ""


@pytest.mark.filterwarnings("ignore")  # of the original, about names, and numbers that overflow
@pytest.mark.parametrize("named", [True, False], ids=["frame", "array"])
@pytest.mark.parametrize("name", MODELS)
def test_the_step_and_the_column_are_those_of_the_original(name: str, named: bool) -> None:  # noqa: FBT001 (a case)
    if not named and "column" in name:
        pytest.skip("columns are chosen by name")
    data: Any = FRAME if named else FRAME.to_numpy()
    model = MODELS[name].fit(data, TARGET)
    flow = flour.from_sklearn(model, sample=data[:4])
    plan, refused = oven.bake(flow), 0
    for value in VALUES.values():
        for column in range(3):
            x = FRAME.iloc[:3].copy()
            x.iloc[1, column] = value
            rows: Any = x if named else x.to_numpy()
            wanted = refusing(model, rows)
            for answer in (flow.reference, plan.run):
                if not wanted:
                    answer(rows)
                    continue
                with pytest.raises(InputError, match=f"^{wanted} refuses") as caught:
                    answer(rows)
                where = str(caught.value.where)
                place = rf"\$\.{'abc'[column]}\[1\]" if named else rf"\$\[1\]\[{column}\]"
                assert re.fullmatch(place, where), where
                refused += 1
    assert refused


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e300])
def test_who_has_met_one_class_only_refuses_nothing(odd: float) -> None:
    """Such an estimator of an ensemble looks at no number; the others refuse what they refuse."""
    rows = FRAME.to_numpy()
    alone = np.tile([1, 0], (len(rows), 1))
    wrong = rows[:4].copy()
    wrong[2, 1] = odd
    with pytest.warns(UserWarning, match="Label"):
        made = OneVsRestClassifier(LogisticRegression()).fit(rows, alone)
    plan = oven.bake(flour.from_sklearn(made))
    assert plan.run(wrong)["label"].tolist() == made.predict(wrong).tolist()
    alone[:, 1] = TARGET
    with pytest.warns(UserWarning, match="Label"):
        made = OneVsRestClassifier(LogisticRegression()).fit(rows, alone)
    if not np.isfinite(odd):
        with pytest.raises(ValueError, match=r"NaN|inf"):
            made.predict(wrong)
        with pytest.raises(InputError, match="LogisticRegression refuses"):
            oven.bake(flour.from_sklearn(made)).run(wrong)
