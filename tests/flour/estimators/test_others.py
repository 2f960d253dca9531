"""Estimators of other libraries, by stand-ins for their classes: the suite does without them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import flour
import oven
from flour.core.errors import FlourError, InputError, UnknownEstimator
from tests.estimators import check

_rng = np.random.default_rng(5)
X = _rng.normal(size=(80, 3))
Y = np.array(["no", "yes", "odd"])[np.digitize(X[:, 0], [-0.5, 0.5])]


def of(module: str, parent: Any, name: str) -> Any:
    """A class of another library that only trains in another way than its parent."""
    return type(name, (parent,), {"__module__": module})


def balanced(name: str) -> Any:
    """An ensemble of imbalanced-learn, fitted by its parent."""
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    if name == "RUSBoostClassifier":
        kind = of("imblearn.ensemble._weight_boosting", AdaBoostClassifier, name)
        return kind(tree, n_estimators=4, random_state=0)
    if name == "BalancedRandomForestClassifier":
        return of("imblearn.ensemble._forest", RandomForestClassifier, name)(5, random_state=0)
    child = of("imblearn.pipeline", Pipeline, "Pipeline")([("tree", tree)])
    module = "_bagging" if name == "BalancedBaggingClassifier" else "_easy_ensemble"
    kind = of(f"imblearn.ensemble.{module}", BaggingClassifier, name)
    return kind(child, n_estimators=4, random_state=0)


@pytest.mark.parametrize(
    "name",
    [
        *("BalancedRandomForestClassifier", "BalancedBaggingClassifier"),
        *("EasyEnsembleClassifier", "RUSBoostClassifier"),
    ],
)
def test_ensembles_of_imbalanced_learn(name: str) -> None:
    fitted = balanced(name).fit(X, Y)
    check(fitted, X)
    with pytest.raises(InputError, match=r"refuses infinity"):
        flour.from_sklearn(fitted).reference(np.full((1, 3), np.inf))


def test_the_steps_of_skrub_are_no_column_transformer() -> None:
    class TableVectorizer(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
        """Has an attribute of that name, which is another thing."""

        __module__ = "skrub._table_vectorizer"

        def fit(self, rows: Any, target: Any = None) -> Any:
            """Learn the columns."""
            self.transformers_ = {"a": StandardScaler()}
            self.n_features_in_ = rows.shape[1]
            return self

        def transform(self, rows: Any) -> Any:
            """The rows."""
            return np.asarray(rows) * 2.0

    model = make_pipeline(TableVectorizer(), Ridge()).fit(X, X[:, 0])
    for sample in (None, X[:3]):
        with pytest.raises(UnknownEstimator, match=r"TableVectorizer cannot be imported"):
            flour.from_sklearn(model, sample)
    made = oven.bake(flour.from_sklearn(model, X[:3], allow_python=True)).run(X)
    np.testing.assert_allclose(made["value"], model.predict(X))


# --- without the extra --------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["onnx", "skl2onnx"])
def test_without_the_extra_an_unknown_step_says_so(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Strange(Ridge):  # type: ignore[misc]  # sklearn is untyped
        """A class without an adapter."""

    def no_onnx(_: bytes) -> Any:
        raise ModuleNotFoundError("No module named 'onnx'")

    fitted = Strange().fit(X, X[:, 0])
    if missing == "onnx":
        monkeypatch.setattr("flour.sklearn.fallback._converted", lambda *_: b"")
        monkeypatch.setattr("flour.onnx.from_onnx", no_onnx)
    else:
        monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(FlourError, match=rf"{missing} is not installed.*pretzel-runtime\[onnx\]"):
        flour.from_sklearn(fitted, X[:5])
