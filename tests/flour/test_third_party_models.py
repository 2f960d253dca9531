"""Models that other people trained, where a collection of them lies beside the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.datasets import load_svmlight_file

import flour
import oven
from flour.boosters.lightgbm import categories_of, parse, text_of
from flour.core.errors import DamagedProgram
from tests.house import ROOT

MODELS = ROOT.parent / "shared" / "data" / "models"
pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="no collection of models here")


def found(folder: str, *patterns: str) -> list[Any]:
    """The files of a folder as test parameters; one placeholder where there are none."""
    paths = sorted({path for p in patterns for path in (MODELS / folder).rglob(p)})
    return [pytest.param(path, id=f"{path.parent.name}-{path.name}") for path in paths] or [MODELS]


def is_light(path: Path) -> bool:
    """Whether a file is a LightGBM model."""
    return path.is_file() and path.read_bytes()[:5] == b"tree\n"


LIGHT = [
    p
    for p in found("lightgbm", "*.model", "*.txt")
    if not isinstance(p, Path) and is_light(p.values[0]) and "malformed" not in p.id
] or [MODELS]  # fmt: skip


def odd_rows(width: int, seed: int = 0) -> Any:
    """Rows of ordinary numbers, categories, missing values and zeros."""
    random = np.random.default_rng(seed)
    rows = random.normal(size=(60, width)) * random.choice([1.0, 30.0, 1000.0], size=(1, width))
    rows = np.where(random.random(rows.shape) < 0.4, np.floor(np.abs(rows)), rows)
    rows[random.random(rows.shape) < 0.1] = np.nan
    rows[random.random(rows.shape) < 0.1] = 0.0
    return rows


def framed(path: Path, rows: Any) -> pd.DataFrame:
    """The rows as a frame, with categories the model knows and one it does not."""
    head, _ = parse(text_of(path))
    frame = pd.DataFrame(rows, columns=head["feature_names"].split(" "))
    random = np.random.default_rng(1)
    for column, known in categories_of(head).items():
        strange = "Atlantis" if isinstance(known[0], str) else -12345
        values = random.choice(np.array([*known, strange], dtype=object), len(rows))
        frame[frame.columns[column]] = pd.Categorical(values.tolist())
    return frame


@pytest.mark.parametrize("path", LIGHT)
def test_lightgbm_models(path: Path) -> None:
    program = flour.from_lightgbm(path)
    booster = lgb.Booster(model_file=path)
    rows: Any = odd_rows(booster.num_feature())
    if booster.pandas_categorical:
        rows = framed(path, rows)
    raw, answers = booster.predict(rows, raw_score=True), booster.predict(rows)
    for made in (program.reference(rows), oven.bake(program, exact=True).run(rows)):
        np.testing.assert_allclose(made["scores"], raw, rtol=1e-12, atol=1e-300)
        np.testing.assert_allclose(made["value"], answers, rtol=1e-12, atol=1e-300)


def test_a_lightgbm_model_that_was_cut_is_an_error() -> None:
    for path in (MODELS / "lightgbm" / "lleaves_malformed").glob("*.txt"):
        with pytest.raises(DamagedProgram, match="cut short"):
            flour.from_lightgbm(path)


@pytest.mark.parametrize("path", found("xgboost", "*.json"))
def test_xgboost_models(path: Path) -> None:
    program = flour.from_xgboost(path)
    with xgb.config_context(verbosity=0):  # old files make it say so
        booster = xgb.Booster(model_file=path)
    names, kinds = booster.feature_names, booster.feature_types
    rows = odd_rows(booster.num_features()).astype(np.float32)
    if kinds is not None and "c" in kinds:
        where = [kind == "c" for kind in kinds]
        rows[:, where] = np.abs(np.floor(rows[:, where])) % 20
    matrix = xgb.DMatrix(rows, feature_names=names, feature_types=kinds, enable_categorical=True)
    margin = booster.predict(matrix, output_margin=True)
    ulp = np.finfo(np.float32).eps * np.abs(margin).max()
    for made in (program.reference(rows), oven.bake(program, exact=True).run(rows)):
        np.testing.assert_allclose(made["scores"], margin, rtol=0, atol=2 * ulp)
        np.testing.assert_allclose(made["value"], booster.predict(matrix), rtol=2e-6, atol=1e-7)


#: Old binary models with the answers they gave: model, data, answers, output, rounds.
AGARICUS, DERMATOLOGY = "agaricus_test", "dermatology_test"
OLD = [
    ("xgagaricus", AGARICUS, "xgagaricus_true_predictions", "value", None),
    ("xgblin_agaricus", AGARICUS, "xgblin_agaricus_true_predictions", "value", None),
    ("xgblin_agaricus", AGARICUS, "xgblin_agaricus_true_raw_predictions", "scores", None),
    ("xg_dart_agaricus", AGARICUS, "xg_dart_agaricus_true_predictions", "scores", 10),
    ("xgdermatology", DERMATOLOGY, "xgdermatology_true_predictions", "scores", None),
]


@pytest.mark.parametrize(("model", "data", "answers", "output", "rounds"), OLD)
def test_old_xgboost_models_answer_as_they_did(
    model: str, data: str, answers: str, output: str, rounds: int | None
) -> None:
    folder = MODELS / "xgboost" / "leaves"
    program = flour.from_xgboost(folder / f"{model}.model", rounds=rounds)
    width = program.inputs()["X"].width  # type: ignore[union-attr]  # a vector
    rows, _ = load_svmlight_file(str(folder / f"{data}.libsvm"), n_features=width, zero_based=True)
    want = np.loadtxt(folder / f"{answers}.txt")
    got = program.reference(rows.astype(np.float32))[output].reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=3e-7)


@pytest.mark.parametrize("path", found("xgboost/treebeard", "*.csv"))
def test_answers_kept_beside_xgboost_models(path: Path) -> None:
    table = np.loadtxt(path, delimiter=",")
    program = flour.from_xgboost(path.with_suffix(""))
    got = program.reference(table[:200, :-1].astype(np.float32))["value"]
    np.testing.assert_allclose(got, table[:200, -1], rtol=1e-5, atol=1e-6)
