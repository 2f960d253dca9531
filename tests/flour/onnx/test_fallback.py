"""Steps without an adapter, by way of skl2onnx: taken where answers agree, refused where not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from skl2onnx import update_registered_converter
from skl2onnx.algebra.onnx_ops import OnnxAbs, OnnxMul
from skl2onnx.common.utils import check_input_and_output_numbers
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from flour.core.errors import UnknownEstimator
from oven.explain import explain

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
Y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)


class Twice(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """Twice the absolute value; the converter may be told to be wrong."""

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor

    def fit(self, X: Any, y: Any = None) -> Twice:
        """Learn how wide rows are."""
        self.n_features_in_ = np.shape(X)[1]
        return self

    def transform(self, X: Any) -> Any:
        """What it is called for."""
        return np.abs(np.asarray(X)) * 2.0


class Mean(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """Nobody converts it."""

    def fit(self, X: Any, y: Any = None) -> Mean:
        """Learn how wide rows are."""
        self.n_features_in_ = np.shape(X)[1]
        return self

    def predict(self, X: Any) -> Any:
        """The mean."""
        return np.mean(X, axis=1)


class Voted(LogisticRegression):  # type: ignore[misc]  # sklearn is untyped
    """A logistic regression under another name, converted as what it is."""


def shapes(operator: Any) -> None:
    """Rows of the same width."""
    check_input_and_output_numbers(operator, input_count_range=1, output_count_range=1)
    operator.outputs[0].type = operator.inputs[0].type.__class__(
        [None, operator.raw_operator.n_features_in_]
    )


def convert(scope: Any, operator: Any, container: Any) -> None:
    """|x| times the factor it was made with."""
    dtype = np.float64 if "Double" in str(operator.inputs[0].type) else np.float32
    factor = np.array([operator.raw_operator.factor], dtype)
    version = container.target_opset
    made = OnnxMul(
        OnnxAbs(operator.inputs[0], op_version=version),
        factor,
        op_version=version,
        output_names=operator.outputs[:1],
    )
    made.add_to(scope, container)


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    """Our estimators are known to skl2onnx."""
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.operator_converters.linear_classifier import convert_sklearn_linear_classifier
    from skl2onnx.shape_calculators.linear_classifier import (
        calculate_linear_classifier_output_shapes,
    )

    update_registered_converter(Twice, "TestTwice", shapes, convert)
    update_registered_converter(
        Voted,
        "TestVoted",
        calculate_linear_classifier_output_shapes,
        convert_sklearn_linear_classifier,
        options={
            "zipmap": [True, False],
            "nocl": [True, False],
            "output_class_labels": [False, True],
            "raw_scores": [True, False],
        },
    )
    assert Twice in sklearn_operator_name_map


def test_a_transformer_in_the_middle_of_a_pipeline() -> None:
    fit = make_pipeline(StandardScaler(), Twice(), LogisticRegression()).fit(X, Y)
    flow = flour.from_sklearn(fit, sample=X)
    plan = oven.bake(flow)
    np.testing.assert_allclose(plan.run(X)["probabilities"], fit.predict_proba(X), rtol=1e-9)
    assert "onnxruntime" not in explain(plan)


def test_a_classifier_of_another_class() -> None:
    fit = make_pipeline(StandardScaler(), Voted()).fit(X, Y)
    made = oven.bake(flour.from_sklearn(fit, sample=X.astype(np.float32))).run(X.astype(np.float32))
    np.testing.assert_array_equal(made["label"], fit.predict(X))
    np.testing.assert_allclose(made["probabilities"], fit.predict_proba(X), atol=1e-6)


def test_no_sample_or_a_converter_that_is_wrong_is_refused() -> None:
    with pytest.raises(UnknownEstimator, match="Twice"):
        flour.from_sklearn(make_pipeline(StandardScaler(), Twice()).fit(X))
    with pytest.raises(UnknownEstimator, match="answers another features"):
        flour.from_sklearn(make_pipeline(StandardScaler(), Twice(3.0)).fit(X), sample=X)


def test_what_nobody_converts_is_refused_with_both_reasons() -> None:
    fit = make_pipeline(StandardScaler(), Mean()).fit(X, Y)
    with pytest.raises(UnknownEstimator, match="skl2onnx does not convert it") as caught:
        flour.from_sklearn(fit, sample=X)
    assert "step 'mean'" in str(caught.value)
