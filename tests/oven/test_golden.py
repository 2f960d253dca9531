"""A dozen pipelines as text: the program, what the rules make of it, its stages and their code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import VotingClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import flour
import oven
from flour.core.types import Type, Vector
from oven.codegen.stages import Stage
from oven.optimise.summary import brief, listing
from tests.golden import Golden

pytestmark = pytest.mark.rules

# Small whole numbers: the fits are exact enough for their zeros and signs to be the same anywhere.
_rng = np.random.default_rng(20181008)
X = _rng.integers(-9, 10, size=(60, 8)).astype(np.float64)
TWO = (X[:, 0] + 2 * X[:, 3] > 0).astype(int)
THREE = np.digitize(X[:, 0] + 2 * X[:, 3], [-6.0, 6.0])
VALUE = X @ np.arange(1.0, 9.0)
FRAME = pd.DataFrame(
    {
        "age": X[:, 0] + 30,
        "fare": np.where(X[:, 1] > 7, np.nan, X[:, 1]),
        "city": _rng.choice(["Rome", "Oslo", "Cairo"], 60),
        "plan": _rng.choice(["free", "team"], 60),
    }
)


def _mixed() -> Any:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = OneHotEncoder(handle_unknown="ignore")
    columns = [("num", numbers, ["age", "fare"]), ("cat", encoder, ["city", "plan"])]
    return make_pipeline(ColumnTransformer(columns), LogisticRegression()).fit(FRAME, TWO)


def _lasso() -> Any:
    model = make_pipeline(StandardScaler(), Lasso(alpha=0.1)).fit(X, VALUE)
    model[-1].coef_ = np.array([0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.5, 0.0])
    return model


def _network() -> Any:
    model = MLPClassifier((6,), max_iter=50, tol=10.0, n_iter_no_change=1, random_state=0)
    return make_pipeline(StandardScaler(), model).fit(X, THREE)


def _voting() -> Any:
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    return VotingClassifier([("a", scaled), ("b", GaussianNB())], voting="soft").fit(X, TWO)


def _union() -> Any:
    union = make_union(StandardScaler(), Normalizer())
    return make_pipeline(union, LogisticRegression()).fit(X, TWO)


PIPELINES: dict[str, Callable[[], Any]] = {
    "scaler_logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression()).fit(X, TWO),
    "three_classes": lambda: make_pipeline(StandardScaler(), LogisticRegression()).fit(X, THREE),
    "mixed_columns": _mixed,
    "pca_linear": lambda: make_pipeline(PCA(4), LinearRegression()).fit(X, VALUE),
    "minmax_ridge": lambda: make_pipeline(MinMaxScaler(), Ridge()).fit(X, VALUE),
    "two_scalers": lambda: make_pipeline(StandardScaler(), MinMaxScaler()).fit(X),
    "normalised_svc": lambda: make_pipeline(Normalizer(), LinearSVC()).fit(X, TWO),
    "k_best": lambda: make_pipeline(StandardScaler(), SelectKBest(k=3), LogisticRegression()).fit(
        X, TWO
    ),
    "lasso": _lasso,
    "network": _network,
    "scaled_tree": lambda: make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=2)).fit(
        X, TWO
    ),
    "polynomial": lambda: make_pipeline(PolynomialFeatures(2), Ridge()).fit(X[:, :3], VALUE),
    "union": _union,
    "voting": _voting,
}


@pytest.mark.parametrize("name", PIPELINES)
def test_pipeline(name: str, golden: Golden) -> None:
    program = flour.from_sklearn(PIPELINES[name](), FRAME if name == "mixed_columns" else None)
    plan = oven.bake(program)
    golden(listing(program.outputs, program.origins()), "graph")
    golden(listing(plan.program.optimised.outputs, plan.program.optimised.origins()), "optimised")
    golden("\n\n".join(_stage(stage) for stage in plan.program.stages), "stages")
    golden("\n".join(stage.source or f"# {stage.name}" for stage in plan.program.stages), "source")


def _stage(stage: Stage) -> str:
    lines = [f"{stage.kind} {stage.name or stage.nodes[0].op.name}"]
    lines += [f"  reads   {_value(value)}" for value in stage.inputs]
    lines += [f"  runs    {brief(item.op)}" for item in stage.nodes]
    lines += [f"  leaves  {brief(item.op)}: {item.type}" for item in stage.outputs]
    return "\n".join(lines)


def _value(value: Any) -> str:
    kind: Type = value.type
    name = brief(value.op) if hasattr(value, "op") else f"{value.label}{list(value.fields) or ''}"
    wide = kind if isinstance(kind, Vector) else str(kind)
    return f"{name}: {wide}"
