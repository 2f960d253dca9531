"""Programs as ONNX models: run by onnxruntime and by ONNX's own evaluator, and read back again."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from onnx import ModelProto, checker
from onnx.reference import ReferenceEvaluator
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import flour
import runtime
from flour.core.errors import UnsupportedSetting
from tests.onnx_parts import theirs_by_name

RNG = np.random.default_rng(7)
X = RNG.normal(size=(90, 4))
TWO, THREE = (X[:, 0] > 0).astype(int), np.digitize(X[:, 1], [-0.5, 0.5])
NAMED = np.array(["low", "mid", "high"])[THREE]
VALUE = X @ [1.0, 2.0, 3.0, 4.0]
HOLES = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
CODES = np.round(X * 2).clip(-2, 2)


def network(kind: Any, y: Any) -> Any:
    """A network after some steps, which say that they were too few."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(hidden_layer_sizes=(6,), max_iter=5, random_state=0).fit(X, y)


FITTED: dict[str, tuple[Any, Any]] = {
    "scaled logistic": (make_pipeline(StandardScaler(), LogisticRegression()).fit(X, TWO), X),
    "logistic of three": (LogisticRegression().fit(X, NAMED), X),
    "linear": (LinearRegression().fit(X, VALUE), X),
    "min-max": (MinMaxScaler().fit(X), X),
    "max-abs": (MaxAbsScaler().fit(X), X),
    "robust": (RobustScaler().fit(X), X),
    "imputed": (SimpleImputer().fit(HOLES), HOLES),
    "imputed with marks": (SimpleImputer(add_indicator=True).fit(HOLES), HOLES),
    **{f"normalised by {n}": (Normalizer(n).fit(X), X) for n in ("l1", "l2", "max")},
    "binarised": (Binarizer(threshold=0.3).fit(X), X),
    "one-hot": (OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit(CODES), CODES),
    "ordinal": (OrdinalEncoder().fit(CODES), CODES),
    "tree": (DecisionTreeClassifier().fit(X, NAMED), X),
    "tree of values": (DecisionTreeRegressor(max_depth=5).fit(X, VALUE), X),
    "a single leaf": (DecisionTreeRegressor().fit(X, np.ones(len(X))), X),
    "forest": (RandomForestClassifier(7, random_state=0).fit(X, THREE), X),
    "forest of values": (RandomForestRegressor(7, random_state=0).fit(X, VALUE), X),
    "boosted": (GradientBoostingClassifier(n_estimators=6).fit(X, THREE), X),
    "boosted values": (GradientBoostingRegressor(n_estimators=6).fit(X, VALUE), X),
    "histograms": (HistGradientBoostingClassifier(max_iter=6).fit(HOLES, TWO), HOLES),
    "components": (PCA(2).fit(X), X),
    "network": (network(MLPClassifier, THREE), X),
    "network of two": (network(MLPClassifier, TWO), X),
    "network of values": (network(MLPRegressor, VALUE), X),
    "clusters": (KMeans(3, random_state=0).fit(X), X),
    "mixed columns": (
        ColumnTransformer(
            [
                ("numbers", StandardScaler(), [0, 1]),
                ("categories", OneHotEncoder(handle_unknown="ignore"), [2]),
            ]
        ).fit(CODES),
        CODES,
    ),
}


def assert_same(got: Any, want: Any, tolerance: float = 1e-10) -> None:
    """Equal labels, close numbers, of the same dtype."""
    want = np.asarray(want.toarray() if hasattr(want, "toarray") else want)
    assert got.shape == want.shape
    if want.dtype.kind in "OU":
        np.testing.assert_array_equal(got, want)
        return
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("fit", "rows"), FITTED.values(), ids=FITTED.keys())
def test_onnxruntime_answers_as_the_program_does(fit: Any, rows: Any) -> None:
    flow = flour.from_sklearn(fit)
    data = flour.to_onnx(flow)
    checker.check_model(ModelProto.FromString(data), full_check=True)
    want = flow.reference(rows)
    got = theirs_by_name(data, X=rows)
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert_same(got[name], value)


@pytest.mark.parametrize("name", ["scaled logistic", "imputed with marks", "one-hot", "clusters"])
def test_onnx_evaluates_it_to_the_same(name: str) -> None:
    fit, rows = FITTED[name]
    flow = flour.from_sklearn(fit)
    evaluator = ReferenceEvaluator(ModelProto.FromString(flour.to_onnx(flow)))
    got = dict(zip(evaluator.output_names, evaluator.run(None, {"X": rows}), strict=True))
    for key, value in flow.reference(rows).items():
        assert_same(np.asarray(got[key]), value)


@pytest.mark.parametrize(("fit", "rows"), FITTED.values(), ids=FITTED.keys())
def test_what_was_written_is_read_back(fit: Any, rows: Any) -> None:
    flow = flour.from_sklearn(fit)
    again = flour.from_onnx(flour.to_onnx(flow))
    assert list(again.outputs) == list(flow.outputs)
    for name, value in flow.reference(rows).items():
        got = np.asarray(again.reference(rows)[name])
        assert_same(got.reshape(np.shape(value)) if got.size == np.size(value) else got, value)


def test_float32_stays_float32() -> None:
    flow = flour.vector("x", 3, "float32").subtract([1.0, 2.0, 3.0]).tanh()
    rows = RNG.normal(size=(5, 3)).astype(np.float32)
    (got,) = theirs_by_name(flour.to_onnx(flow), x=rows).values()
    assert_same(got, flow.reference(rows)["output"], 1e-6)


def test_frames_become_one_input_for_each_column() -> None:
    frame = pd.DataFrame({"age": X[:, 0], "height": X[:, 1], "city": NAMED})
    fit = ColumnTransformer(
        [
            ("numbers", StandardScaler(), ["age", "height"]),
            ("names", OneHotEncoder(handle_unknown="ignore"), ["city"]),
        ]
    ).fit(frame)
    flow = flour.from_sklearn(fit, sample=frame)
    feed = {name: frame[[name]].to_numpy() for name in frame}
    feed["city"] = feed["city"].astype(object)
    (got,) = theirs_by_name(flour.to_onnx(flow), **feed).values()
    assert_same(got, flow.reference(frame)["features"])


NOTHING = {"none": None, "nan": np.nan}


@pytest.mark.parametrize("lost", sorted(NOTHING))
@pytest.mark.parametrize("how", ["known", "unknown", "imputed", "ordinal"])
def test_missing_strings_are_the_texts_that_onnxruntime_reads_them_as(lost: str, how: str) -> None:
    names = np.array(["b", NOTHING[lost], "a", "b", "Nan", "a"], object)[:, None]
    kept = names[[0, 2, 3, 4, 5]] if how == "unknown" else names
    step: Any = OneHotEncoder(handle_unknown="ignore")
    if how == "imputed":
        marker = SimpleImputer(strategy="most_frequent", missing_values=NOTHING[lost])
        step = make_pipeline(marker, OrdinalEncoder())
    elif how == "ordinal":
        step = OrdinalEncoder(encoded_missing_value=-7)
    flow = flour.from_sklearn(step.fit(kept), sample=kept)
    data = flour.to_onnx(flow)
    (want,) = flow.reference(names).values()
    (got,) = theirs_by_name(data, x0=names).values()
    assert_same(got, want)
    (back,) = runtime.InferenceSession(data, native_only=True).run(None, {"x0": names})
    assert_same(back, got)


def test_an_operator_without_onnx_form_is_refused_by_name() -> None:
    flow = flour.text("t").lower()
    with pytest.raises(UnsupportedSetting, match="has no ONNX form") as caught:
        flour.to_onnx(flow)
    assert "test_export.py" in str(caught.value)
    assert caught.value.hint


ODD = np.array([[np.nan, 1, np.nan], [np.inf, -np.inf, 0], [-1.5, 2.5, 0.5], [3, -0.0, 3]])


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("name", ["max", "min", "sum", "ceil", "floor", "rint", "is_nan"])
@pytest.mark.parametrize("rows", [4, 0])
def test_odd_values(name: str, dtype: str, rows: int) -> None:
    flow = getattr(flour.vector("x", 3, dtype), name)().named("y")
    values = (np.nan_to_num(ODD, posinf=9, neginf=-9) if dtype == "int64" else ODD).astype(dtype)
    data, given = flour.to_onnx(flow), values[:rows]
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    want = np.asarray(flow.reference(given)["y"])
    (got,) = session.run(None, {"x": given})
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(flour.from_onnx(data).reference(given)["y"], want)


def test_a_marker_between_whole_numbers_marks_none() -> None:
    flow = flour.vector("x", 2, "int64").is_missing(0.5).named("y")
    session = onnxruntime.InferenceSession(flour.to_onnx(flow), providers=["CPUExecutionProvider"])
    assert not session.run(None, {"x": np.zeros((3, 2), np.int64)})[0].any()
