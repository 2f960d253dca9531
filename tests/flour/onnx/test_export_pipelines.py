"""Pipelines drawn at random, as ONNX: onnxruntime and a re-import answer as the program does.

float64 stays float64 throughout, so both sides may be 10⁻¹⁰ of the largest number apart,
and labels are the same. float32 is held to 10⁻⁵.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sklearn import (
    calibration,
    cluster,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    gaussian_process,
    impute,
    kernel_approximation,
    linear_model,
    mixture,
    multiclass,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.pipeline import make_pipeline, make_union

import flour
from flour.onnx import import_model
from tests.onnx_parts import session

RNG = np.random.default_rng(20181008)
X = RNG.normal(size=(80, 4))
NEW = np.concatenate([RNG.normal(size=(25, 4)) * 1.5, X[:5]])
TARGETS: dict[str, Any] = {
    "two": (X[:, 0] > 0).astype(int),
    "three": np.digitize(X[:, 1] + X[:, 2], [-0.7, 0.7]),
    "names": np.array(["low", "mid", "high"])[np.digitize(X[:, 1], [-0.5, 0.5])],
    "value": X @ [1.0, -2.0, 3.0, 0.5],
}


def _few(kind: Any, **how: Any) -> Callable[[], Any]:
    return lambda: kind(random_state=0, **how)


_HALF = ColumnTransformer([("a", preprocessing.StandardScaler(), [0, 2])], remainder="passthrough")
STEPS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: "passthrough",
    "standard": preprocessing.StandardScaler,
    "min-max": lambda: preprocessing.MinMaxScaler(clip=True),
    "robust": preprocessing.RobustScaler,
    "max-abs": preprocessing.MaxAbsScaler,
    "normalizer": preprocessing.Normalizer,
    "yeo-johnson": preprocessing.PowerTransformer,
    "quantiles": lambda: preprocessing.QuantileTransformer(n_quantiles=20),
    "normal quantiles": lambda: preprocessing.QuantileTransformer(
        n_quantiles=20, output_distribution="normal"
    ),
    "bins": lambda: preprocessing.KBinsDiscretizer(
        3, encode="onehot-dense", quantile_method="averaged_inverted_cdf"
    ),
    "polynomial": lambda: preprocessing.PolynomialFeatures(3),
    "imputer": lambda: impute.SimpleImputer(strategy="median"),
    "pca": lambda: decomposition.PCA(3),
    "kernel pca": lambda: decomposition.KernelPCA(3, kernel="rbf"),
    "kmeans": _few(cluster.KMeans, n_clusters=3, n_init=1),
    "nystroem": _few(kernel_approximation.Nystroem, n_components=5),
    "best": lambda: feature_selection.SelectKBest(k=2),
    "half": lambda: _HALF,
    "union": lambda: make_union(decomposition.PCA(2), preprocessing.StandardScaler()),
}
_RBF = gaussian_process.kernels.RBF(2.0)
CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "logistic": linear_model.LogisticRegression,
    "ridge": linear_model.RidgeClassifier,
    "tree": _few(tree.DecisionTreeClassifier, max_depth=4),
    "forest": _few(ensemble.RandomForestClassifier, n_estimators=5),
    "boosting": _few(ensemble.GradientBoostingClassifier, n_estimators=4),
    "histograms": _few(ensemble.HistGradientBoostingClassifier, max_iter=4),
    "adaboost": _few(ensemble.AdaBoostClassifier, n_estimators=4),
    "svc": svm.SVC,
    "linear svc": _few(svm.LinearSVC),
    "neighbours": lambda: neighbors.KNeighborsClassifier(3, weights="distance"),
    "centroid": neighbors.NearestCentroid,
    "gaussian bayes": naive_bayes.GaussianNB,
    "bernoulli bayes": naive_bayes.BernoulliNB,
    "discriminants": discriminant_analysis.LinearDiscriminantAnalysis,
    "quadratic": lambda: discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1),
    "network": _few(neural_network.MLPClassifier, hidden_layer_sizes=(5,), max_iter=20),
    "process": lambda: gaussian_process.GaussianProcessClassifier(_RBF, optimizer=None),
    "calibrated": lambda: calibration.CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2),
    "one against rest": lambda: multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
    "voting": lambda: ensemble.VotingClassifier(
        [("a", linear_model.LogisticRegression()), ("b", naive_bayes.GaussianNB())], voting="soft"
    ),
}
REGRESSORS: dict[str, Callable[[], Any]] = {
    "linear": linear_model.LinearRegression,
    "huber": linear_model.HuberRegressor,
    "poisson": lambda: TransformedTargetRegressor(
        linear_model.Ridge(), func=np.exp, inverse_func=np.log, check_inverse=False
    ),
    "forest": _few(ensemble.RandomForestRegressor, n_estimators=5),
    "histograms": _few(ensemble.HistGradientBoostingRegressor, max_iter=4),
    "svr": svm.SVR,
    "neighbours": lambda: neighbors.KNeighborsRegressor(3),
    "process": lambda: gaussian_process.GaussianProcessRegressor(_RBF, alpha=1.0, optimizer=None),
    "network": _few(neural_network.MLPRegressor, hidden_layer_sizes=(5,), max_iter=20),
    "stacking": lambda: ensemble.StackingRegressor(
        [("a", linear_model.Ridge()), ("b", tree.DecisionTreeRegressor(max_depth=3))], cv=2
    ),
    "isolation": _few(ensemble.IsolationForest, n_estimators=4),
    "mixture": _few(mixture.GaussianMixture, n_components=2),
}
MODELS = [
    *(("value", name) for name in sorted(REGRESSORS)),
    *((y, name) for y in ("two", "three", "names") for name in sorted(CLASSIFIERS)),
]


def fitted(step: str, target: str, name: str) -> Any:
    """A pipeline of a step and a model."""
    model = (REGRESSORS if target == "value" else CLASSIFIERS)[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_pipeline(STEPS[step](), model).fit(X, TARGETS[target])


def agree(got: Any, want: Any, share: float, name: str) -> None:
    """Equal labels, numbers that are a part of the largest apart."""
    want = np.asarray(want.toarray() if hasattr(want, "toarray") else want)
    assert got.shape == want.shape, name
    if want.dtype.kind in "OUbi":
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    assert got.dtype == want.dtype, name
    atol = share * float(np.abs(want[np.isfinite(want)]).max(initial=1e-300))
    np.testing.assert_allclose(got, want, rtol=0, atol=atol, err_msg=name)


def held(fit: Any, rows: Any, share: float) -> None:
    """The program, the model on onnxruntime, and the program that is read back answer alike."""
    flow = flour.from_sklearn(fit, sample=rows)
    data = flour.to_onnx(flow)
    asked = session(data)
    names = [item.name for item in asked.get_outputs()]
    (feed,) = ({item.name: rows} for item in asked.get_inputs())
    want = flow.reference(rows)
    again = import_model(data, native_only=True)
    back = again.answer(again.flow.reference(again.feed(feed)))
    for name, value in zip(names, asked.run(names, feed), strict=True):
        agree(value, want[name], share, name)
        agree(back[name], want[name], share, f"{name}, read back")


@example(step="nothing", model=("three", "svc"))
@example(step="normal quantiles", model=("two", "process"))
@example(step="polynomial", model=("names", "histograms"))
@given(step=st.sampled_from(sorted(STEPS)), model=st.sampled_from(MODELS))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_pipelines_of_float64(step: str, model: tuple[str, str]) -> None:
    held(fitted(step, *model), NEW, 1e-10)


@pytest.mark.parametrize("step", ["standard", "polynomial", "pca", "bins"])
@pytest.mark.parametrize("model", [("value", "linear"), ("two", "forest"), ("value", "network")])
def test_pipelines_of_float32(step: str, model: tuple[str, str]) -> None:
    held(fitted(step, *model), NEW.astype(np.float32), 1e-5)
