"""Estimators of other libraries, by stand-ins for their classes: the suite does without them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
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


# --- CatBoost -----------------------------------------------------------------------------------


class CatBoost(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """Writes ONNX itself: here that of a model of scikit-learn, over an input of its own name."""

    __module__ = "catboost.core"
    wrong = False

    def fit(self, rows: Any, target: Any) -> Any:
        """Train another model in its place."""
        kind = LogisticRegression if hasattr(self, "predict_proba") else Ridge
        self.inner = kind().fit(np.nan_to_num(rows), target)
        self.classes_ = getattr(self.inner, "classes_", None)
        return self

    def predict(self, rows: Any) -> Any:
        """One column, as CatBoost has it for three classes."""
        return self.inner.predict(np.nan_to_num(np.asarray(rows, np.float32)))[:, None]

    def save_model(self, path: str, format: str) -> None:  # noqa: A002 (its own name)
        """Write ONNX."""
        assert format == "onnx"
        x = flour.vector("features", 3, "float32")
        filled = x.impute(np.nan, np.zeros(3, np.float32)) if not self.wrong else x
        made = flour.from_sklearn(self.inner, on=filled, on_missing="answer")
        names = [name for name in ("label", "probabilities", "value") if name in made.outputs]
        chosen = flour.outputs(**{name: made[name] for name in names})
        Path(path).write_bytes(flour.to_onnx(chosen))


class CatBoostClassifier(ClassifierMixin, CatBoost):  # type: ignore[misc]  # sklearn is untyped
    """With probabilities."""

    __module__ = "catboost.core"

    def predict_proba(self, rows: Any) -> Any:
        """Those of the model inside."""
        return self.inner.predict_proba(np.nan_to_num(np.asarray(rows, np.float32)))


class CatBoostRegressor(RegressorMixin, CatBoost):  # type: ignore[misc]  # sklearn is untyped
    """With values."""

    __module__ = "catboost.core"


GAPS = np.where(_rng.random(X.shape) < 0.2, np.nan, X)


@pytest.mark.parametrize("target", [Y, X[:, 0]], ids=["classes", "numbers"])
def test_catboost_goes_through_its_own_onnx(target: Any) -> None:
    kind = CatBoostClassifier if target is Y else CatBoostRegressor
    fitted = kind().fit(X, target)
    plan = oven.bake(flour.from_sklearn(fitted, X[:9]))
    for rows in (X, X[:1], GAPS):
        got = plan.run(rows)
        if target is Y:
            assert (got["label"] == fitted.predict(rows).ravel()).all()
            np.testing.assert_allclose(got["probabilities"], fitted.predict_proba(rows), atol=1e-6)
        else:
            np.testing.assert_allclose(got["value"], fitted.predict(rows).ravel(), atol=1e-5)


def test_catboost_that_answers_missing_values_otherwise_is_refused() -> None:
    fitted = CatBoostRegressor().fit(X, X[:, 0])
    fitted.wrong = True
    with pytest.raises(UnknownEstimator, match="answers another value"):
        flour.from_sklearn(fitted, X[:9])


def test_catboost_needs_a_sample() -> None:
    with pytest.raises(UnknownEstimator, match="with a sample, it is tried by way of ONNX"):
        flour.from_sklearn(make_pipeline(StandardScaler(), CatBoostRegressor()).fit(X, X[:, 0]))


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
