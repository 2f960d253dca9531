"""Ensembles as one model."""

from __future__ import annotations

import numpy as np
import pytest

import flour
from flour.core.errors import TypeMismatch

ROWS = np.array([[1.0, 0.0], [-2.0, 1.0], [0.5, 0.5]])


def classifier(*weights: float) -> flour.Flow:
    return flour.vector("x", 2).logistic_classifier([[*weights]], 0.0, classes=["no", "yes"])


def test_classifiers_answer_with_mean_probabilities_and_their_label() -> None:
    members = [classifier(1.0, 0.0), classifier(-0.5, 3.0)]
    answers = flour.ensemble(members).model().reference(ROWS)
    shares = np.mean([each.reference(ROWS)["probabilities"] for each in members], axis=0)
    assert np.array_equal(answers["probabilities"], shares)
    assert answers["label"].tolist() == np.array(["no", "yes"])[shares.argmax(1)].tolist()
    assert {*answers} == {"label", "probabilities"}


def test_regressors_answer_with_the_mean_value() -> None:
    x = flour.vector("x", 2)
    members = [
        flour.outputs(value=x.linear([weights], [0.0])) for weights in ([1.0, 0.0], [0.0, 3.0])
    ]
    value = flour.ensemble(members).model().reference(ROWS)["value"]
    assert np.allclose(np.ravel(value), ROWS @ [0.5, 1.5])


def test_models_of_different_kinds_are_refused() -> None:
    other = flour.outputs(value=flour.vector("x", 2).linear([[1.0, 0.0]], [0.0]))
    with pytest.raises(TypeMismatch, match="make one model"):
        flour.ensemble([classifier(1.0, 0.0), other]).model()
