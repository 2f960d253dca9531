"""CatBoost's models as files, in memory and in pickles, compared with the library itself."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
import pretzel

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]
catboost = pytest.importorskip("catboost")
_rng = np.random.default_rng(5)
QUICK: dict[str, Any] = {"verbose": 0, "allow_writing_files": False, "random_seed": 1}
NUMBERS = ["a", "b"]
CATEGORIES = ["city", "zip", "flag"]


def drawn(count: int) -> pd.DataFrame:
    """Rows, some of which have categories that are rare or new."""
    frame = pd.DataFrame(
        {
            "a": _rng.normal(size=count),
            "city": _rng.choice(["Graz", "Łódź", "", "x" * 70], count),
            "zip": _rng.geometric(0.1, count),
            "b": _rng.normal(size=count),
            "flag": _rng.random(count) < 0.5,
        }
    )
    return frame.assign(b=frame["b"].where(_rng.random(count) > 0.1))


TRAINED, NEW = drawn(500), drawn(150)
TARGET = (TRAINED["a"] + (TRAINED["zip"] % 3) + (TRAINED["city"] == "Graz")).to_numpy()
THREE = np.digitize(TARGET, [1, 2])
LOSSES: dict[str, tuple[str, Any]] = {
    **{
        loss: ("Regressor", TARGET - TARGET.min())
        for loss in (
            *("RMSE", "MAE", "MAPE", "Poisson", "LogCosh", "Cox", "RMSEWithUncertainty"),
            *("Quantile:alpha=0.3", "Expectile:alpha=0.2", "Huber:delta=1", "Lq:q=3"),
            *("LogLinQuantile", "Tweedie:variance_power=1.5", "MultiQuantile:alpha=0.1,0.5"),
        )
    },
    "MultiRMSE": ("Regressor", np.c_[TARGET, -TARGET]),
    "Logloss": ("Classifier", np.where(THREE > 0, "yes", "no")),
    "CrossEntropy": ("Classifier", (THREE > 0) * 0.9),
    "Focal:focal_alpha=0.5;focal_gamma=2": ("Classifier", THREE > 0),
    "MultiClass": ("Classifier", THREE + 0.5),
    "MultiClassOneVsAll": ("Classifier", THREE * 2),
    "MultiLogloss": ("Classifier", np.c_[THREE > 0, THREE > 1].astype(int)),
    "MultiCrossEntropy": ("Classifier", np.c_[THREE > 0, THREE > 1] * 0.9),
}


def fitted(loss: str, columns: list[str], **how: Any) -> Any:
    kind, target = LOSSES[loss]
    columns_of_words = [name for name in CATEGORIES if name in columns]
    settings = {"iterations": 12, "depth": 4, **QUICK, **how, "loss_function": loss}
    model = getattr(catboost, f"CatBoost{kind}")(**settings, cat_features=columns_of_words)
    return model.fit(TRAINED[columns], target)


def compare(program: flour.Flow, model: Any, rows: Any) -> None:
    for got in (program.reference(rows), oven.bake(program).run(rows)):
        if "value" in got:
            np.testing.assert_allclose(got["value"], model.predict(rows), rtol=4e-16, atol=4e-16)
            continue
        assert np.asarray(got["label"]).tolist() == model.predict(rows).squeeze().tolist()
        want = model.predict_proba(rows)
        np.testing.assert_allclose(got["probabilities"], want, rtol=0, atol=1e-15)
        if "scores" in got:
            raw = model.predict(rows, prediction_type="RawFormulaVal")
            np.testing.assert_array_equal(got["scores"], raw)


@pytest.mark.parametrize("columns", [NUMBERS, [*TRAINED.columns]], ids=["numbers", "categories"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_in_memory_in_a_file_and_in_a_pickle(
    loss: str, columns: list[str], tmp_path: Path
) -> None:
    model = fitted(loss, columns)
    model.save_model(str(tmp_path / "model.cbm"))
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    rows = NEW[columns]
    compare(flour.from_catboost(model), model, rows)
    compare(flour.from_catboost(tmp_path / "model.cbm"), model, rows)
    compare(flour.from_sklearn(model), model, rows)
    compare(flour.from_sklearn(tmp_path / "model.pkl"), model, rows)
    compare(flour.from_sklearn(model, rows), model, rows)


@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise", "Lossguide"])
@pytest.mark.parametrize(
    "how",
    [
        {"one_hot_max_size": 200},
        {"max_ctr_complexity": 4, "depth": 6, "nan_mode": "Max", "iterations": 40},
        {"simple_ctr": ["Buckets:TargetBorderCount=3:Prior=0.3"], "iterations": 20},
        {"simple_ctr": ["BinarizedTargetMeanValue:TargetBorderCount=4", "Counter:Prior=0.7"]},
        {"per_float_feature_quantization": ["0:border_count=1024"], "iterations": 60},
    ],
)
def test_statistics_of_categories(how: dict[str, Any], policy: str) -> None:
    model = fitted("RMSE", [*TRAINED.columns], grow_policy=policy, **how)
    compare(flour.from_catboost(model), model, NEW)


def test_a_pipeline_of_numbers() -> None:
    model = catboost.CatBoostRegressor(iterations=5, **QUICK)
    fit = make_pipeline(StandardScaler(), model).fit(TRAINED[NUMBERS].to_numpy(), TARGET)
    compare(flour.from_sklearn(fit), fit, NEW[NUMBERS].to_numpy())


@pytest.mark.parametrize("target", [THREE, THREE > 0], ids=["three classes", "two"])
def test_a_compiled_model_is_verified(target: Any) -> None:
    """The library's labels of several classes are a column."""
    model = catboost.CatBoostClassifier(iterations=5, **QUICK)
    rows = TRAINED[NUMBERS].to_numpy()
    for fit in (model.fit(rows, target), make_pipeline(StandardScaler(), model).fit(rows, target)):
        made = pretzel.compile(fit, verify=rows)
        np.testing.assert_array_equal(made.predict(rows), fit.predict(rows))
