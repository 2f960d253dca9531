"""Answers that other people kept beside their LightGBM models, where that collection is here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

import flour
import oven
from tests.flour.test_third_party_models import MODELS

pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="no collection of models here")
LEAVES, TREELITE = MODELS / "lightgbm" / "leaves", MODELS / "lightgbm" / "treelite"

#: Model, data, how many columns of it come before the features, answers, output.
KEPT = [
    ("lg_dart_breast_cancer.model", "breast_cancer_test.tsv", 0, "lg_dart_breast_cancer", "value"),
    ("lg_kddcup99.model", "kddcup99_test.tsv", 0, "lg_kddcup99", "scores"),
    ("lgmulticlass.model", "multiclass_test.tsv", 1, "lgmulticlass", "value"),
    ("lgmulticlass.model", "multiclass_test.tsv", 1, "lgmulticlass_raw", "scores"),
    *(
        (f"{name}.model", f"{name}_features.tsv", 0, name, "value")
        for name in (
            "genlin_fmtp_gamma_AvgClaimAmount",
            "genlin_fmtp_poisson_Frequency",
            "genlin_fmtp_tweedie_PurePremium",
        )
    ),
]


def answers(name: str) -> Path:
    """The file of answers: raw ones say so in the middle of its name."""
    model, raw, _ = name.partition("_raw")
    return LEAVES / f"{model}_true{raw}_predictions.txt"


def both(program: flour.Flow, rows: Any, output: str) -> list[Any]:
    """What the program answers, by definition and natively."""
    return [program.reference(rows)[output], oven.bake(program, exact=True).run(rows)[output]]


@pytest.mark.parametrize(
    ("model", "data", "before", "kept", "output"), KEPT, ids=[row[3] for row in KEPT]
)
def test_lightgbm_answers(model: str, data: str, before: int, kept: str, output: str) -> None:
    want = np.genfromtxt(answers(kept))
    rows = np.genfromtxt(LEAVES / data, delimiter="\t")[:, before:]
    for got in both(flour.from_lightgbm(LEAVES / model), rows, output):
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-12, atol=1e-300)


def test_lightgbm_leaves() -> None:
    want = np.genfromtxt(LEAVES / "lg_breast_cancer_data_pred_leaves.txt")
    rows = np.genfromtxt(LEAVES / "lg_breast_cancer_data.txt")
    program = flour.from_lightgbm(LEAVES / "lg_breast_cancer.txt", leaves=True)
    for got in both(program, rows, "leaves"):
        np.testing.assert_array_equal(got, want)


def test_a_lightgbm_forest() -> None:
    # What was kept is the mean of the trees; the library of today answers with its probability.
    want = np.loadtxt(LEAVES / "lg_rf_iris_true_predictions.txt")
    rows, _ = load_svmlight_file(str(LEAVES / "iris_test.libsvm"), n_features=4, zero_based=True)
    program = flour.from_lightgbm(LEAVES / "lg_rf_iris.model")
    for got in both(program, rows.toarray(), "scores"):
        np.testing.assert_allclose(got.reshape(-1) / 30, want, rtol=1e-12)


def test_lightgbm_categories() -> None:
    want = np.loadtxt(TREELITE / "toy_categorical.test.pred")
    rows, _ = load_svmlight_file(
        str(TREELITE / "toy_categorical.test"), n_features=2, zero_based=True
    )
    program = flour.from_lightgbm(TREELITE / "toy_categorical_model.txt")
    for got in both(program, rows.toarray(), "value"):
        np.testing.assert_array_equal(got.reshape(-1), want)
