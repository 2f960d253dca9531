"""predict_log_proba is the estimator's own: finite where a probability is too small for a float."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.feature_selection import RFE
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import flour
import oven
import pretzel
from runtime.errors import NotOffered, Unfaithful
from runtime.verify import verify

X, Y = load_digits(return_X_y=True)
X, Y = X[:240], Y[:240]
RNG = np.random.default_rng(3)
FEW = RNG.normal(size=(90, 4)) * [1e6, 1, 1e-6, 100]
PARTS = np.digitize(RNG.normal(size=90), [-0.5, 0.5])

CASES: dict[str, tuple[Any, Any, Any]] = {
    "gaussian": (GaussianNB(), X, Y),
    "gaussian, extreme": (GaussianNB(), FEW, PARTS),
    "gaussian, two classes": (GaussianNB(), FEW, PARTS > 0),
    "gaussian, narrow": (GaussianNB(), X.astype(np.float32), Y),
    "multinomial": (MultinomialNB(), X, Y),
    "complement": (ComplementNB(), X, Y),
    "bernoulli": (BernoulliNB(binarize=8.0), X, Y),
    "categorical": (CategoricalNB(min_categories=17), X, Y),
    "linear": (LinearDiscriminantAnalysis(), X * 40, Y),
    "linear, two classes": (LinearDiscriminantAnalysis(), X * 400, Y > 4),
    "linear, narrow": (LinearDiscriminantAnalysis(), (X * 40).astype(np.float32), Y),
    "quadratic": (QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.1), X, Y),
    "centroids": (NearestCentroid(), X, Y),
    "bag": (BaggingClassifier(GaussianNB(), 4, random_state=0), X, Y),
    "small bag": (BaggingClassifier(GaussianNB(), 3, max_samples=7, random_state=0), FEW, PARTS),
    "bag of lines": (BaggingClassifier(LinearDiscriminantAnalysis(), 3, random_state=0), X, Y),
    "bag of trees": (BaggingClassifier(max_samples=20, random_state=0), X, Y),
    "bag of neighbours": (BaggingClassifier(KNeighborsClassifier(), 3, random_state=0), X, Y),
    "pipeline": (make_pipeline(StandardScaler(), GaussianNB()), X, Y),
    "search": (GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}, cv=2), X, Y),
    "threshold": (FixedThresholdClassifier(LinearDiscriminantAnalysis()), X * 400, Y > 4),
    "elimination": (RFE(LinearDiscriminantAnalysis(), n_features_to_select=9, step=9), X * 40, Y),
    "self training": (SelfTrainingClassifier(GaussianNB()), X, Y),
    "logistic": (LogisticRegression(max_iter=20), X * 100, Y),
    "stochastic": (SGDClassifier(loss="modified_huber", random_state=0), X, Y),
    "tree": (DecisionTreeClassifier(), X, Y),
    "forest": (RandomForestClassifier(3, random_state=0), X, Y),
    "dummy": (DummyClassifier(strategy="most_frequent"), X, Y),
}


def near(got: Any, want: Any) -> None:
    """Equal, with infinities and zeros in the same places."""
    tolerance = 2e-5 if want.dtype == np.float32 else 1e-9
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance / 1e3)


@pytest.mark.filterwarnings("ignore")  # theirs, in logarithms, and of fits that have not settled
@pytest.mark.parametrize("name", CASES)
def test_values_are_the_estimators(name: str) -> None:
    estimator, rows, classes = CASES[name]
    fitted = clone(estimator).fit(rows, classes)
    flow = flour.from_sklearn(fitted, rows[:5], log_probabilities=True)
    near(flow.reference(rows)["log_probabilities"], fitted.predict_log_proba(rows))


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("name", ["gaussian", "linear", "small bag", "tree"])
def test_compiled_and_saved(name: str, tmp_path: Path) -> None:
    estimator, rows, classes = CASES[name]
    fitted = clone(estimator).fit(rows, classes)
    want = fitted.predict_log_proba(rows)
    made = pretzel.compile(fitted, verify=rows[:40])
    assert "log_probabilities" not in made.plan.outputs
    near(made.predict_log_proba(rows), want)
    near(made.wait().predict_log_proba(rows[:1]), want[:1])
    oven.bake(flour.from_sklearn(fitted, log_probabilities=True)).save(tmp_path / "p.plan")
    loaded = oven.load(tmp_path / "p.plan")
    near(loaded.run(rows)["log_probabilities"], want)
    near(pretzel.compile(loaded.flow).predict_log_proba(rows), want)


def test_an_estimator_without_it() -> None:
    fitted = LinearSVC().fit(FEW[:, 1:2], PARTS > 0)
    assert [*flour.from_sklearn(fitted, log_probabilities=True).outputs] == ["label", "scores"]
    with pytest.raises(NotOffered):
        _ = pretzel.compile(fitted).predict_log_proba


class Halved:
    """An estimator whose logarithms are not what they were."""

    def __init__(self, fitted: Any) -> None:
        self._fitted = fitted

    def predict_log_proba(self, rows: Any) -> Any:
        return self._fitted.predict_log_proba(rows) / 2


def test_verification_compares_it() -> None:
    fitted = GaussianNB().fit(X, Y)
    plan = oven.bake(flour.from_sklearn(fitted, log_probabilities=True))
    verify(plan, fitted, X[:20])
    with pytest.raises(Unfaithful, match="log_probabilities: 20 of 20 rows differ"):
        verify(plan, Halved(fitted), X[:20])


def test_verification_compares_every_target() -> None:
    targets = np.column_stack([PARTS > 0, PARTS])
    fitted = DecisionTreeClassifier(max_depth=2, random_state=0).fit(FEW, targets)
    plan = oven.bake(flour.from_sklearn(fitted))
    verify(plan, fitted, FEW[:9])
    fitted.tree_.value[:, 1, :2] = fitted.tree_.value[:, 1, 1::-1]
    with pytest.raises(Unfaithful, match="probabilities_1: 9 of 9 rows differ"):
        verify(plan, fitted, FEW[:9])
