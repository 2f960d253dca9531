"""Train the models of this folder with CatBoost (1.2.10), and write down what they answer.

    python tests/flour/catboost_files/make.py

CatBoost is no dependency of the tests: they read these files. What importing does not read (the
parameters of training, but for the loss) is left out of the JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from catboost import CatBoostClassifier, CatBoostRegressor, Pool

HERE = Path(__file__).parent
SETTINGS: dict[str, Any] = {
    "iterations": 4,
    "depth": 3,
    "verbose": 0,
    "allow_writing_files": False,
    "thread_count": 1,
    "random_seed": 1,
}
_rng = np.random.default_rng(3)
X = _rng.normal(size=(300, 4)).astype(np.float32)
Y = X[:, 0] * 2 + X[:, 1] ** 2
GAPS = np.where(_rng.random(X.shape) < 0.1, np.float32(np.nan), X)
NAMED = np.where(Y > 1, "yes", "no")
MODELS: dict[str, tuple[type, dict[str, Any], Any, Any]] = {
    "numbers": (CatBoostRegressor, {}, GAPS, Y),
    "whole": (CatBoostRegressor, {}, X, Y),
    "nan_above": (CatBoostRegressor, {"nan_mode": "Max"}, GAPS, Y),
    "poisson": (CatBoostRegressor, {"loss_function": "Poisson"}, GAPS, np.abs(Y)),
    "two_targets": (CatBoostRegressor, {"loss_function": "MultiRMSE"}, X, np.c_[Y, -Y]),
    "lossguide": (CatBoostRegressor, {"grow_policy": "Lossguide"}, GAPS, Y),
    "binary": (CatBoostClassifier, {}, GAPS, NAMED),
    "threshold": (CatBoostClassifier, {}, X, Y > 1),
    "classes": (CatBoostClassifier, {}, GAPS, np.digitize(Y, [0, 1])),
    "one_vs_all": (
        CatBoostClassifier,
        {"loss_function": "MultiClassOneVsAll"},
        GAPS,
        np.digitize(Y, [0, 1]) * 2,
    ),
    "uncertain": (CatBoostRegressor, {"loss_function": "RMSEWithUncertainty"}, GAPS, Y),
    "tweedie": (
        CatBoostRegressor,
        {"loss_function": "Tweedie:variance_power=1.5"},
        GAPS,
        np.abs(Y),
    ),
    "quantiles": (CatBoostRegressor, {"loss_function": "MultiQuantile:alpha=0.1,0.5"}, GAPS, Y),
    "cox": (CatBoostRegressor, {"loss_function": "Cox"}, GAPS, np.abs(Y)),
    "focal": (
        CatBoostClassifier,
        {"loss_function": "Focal:focal_alpha=0.5;focal_gamma=2"},
        GAPS,
        Y > 1,
    ),
    "shares": (CatBoostClassifier, {"loss_function": "CrossEntropy"}, GAPS, (Y > 1) * 0.8),
    "labels": (
        CatBoostClassifier,
        {"loss_function": "MultiLogloss"},
        GAPS,
        np.c_[Y > 0, Y > 1].astype(int),
    ),
    "depthwise": (
        CatBoostClassifier,
        {"grow_policy": "Depthwise"},
        GAPS,
        np.digitize(Y, [0, 1]) + 0.5,
    ),
}
LONG = "the name of a category that is longer than 64 bytes, as some are"
WORDS = ["", "a", "né", "日本", "seven b", "eleven byte", "more than sixteen", LONG, LONG * 3]


def table(count: int, *, new: bool) -> pd.DataFrame:
    """Rows with categories: strings, whole numbers, bools; some are new to the models."""
    made = pd.DataFrame(
        {
            "size": _rng.normal(size=count).astype(np.float32),
            "word": _rng.choice(WORDS + ["new", LONG + "!"] * new, count),
            "place": _rng.integers(-3, 12 + 4 * new, count),
            "gaps": _rng.normal(size=count).astype(np.float32),
            "letter": _rng.choice([*"pqr"], count),
            "flag": _rng.random(count) < 0.5,
        }
    )
    return made.assign(gaps=made["gaps"].where(_rng.random(count) > 0.1))


TABLE = table(300, new=False)
HEIGHT = (
    TABLE["size"]
    + (TABLE["word"].str.len() % 3)
    + (TABLE["place"] % 3 == 0) * (1 + TABLE["flag"])
    + (TABLE["letter"] == "q") * (TABLE["gaps"] > 0)
).to_numpy()
DEEP = {"max_ctr_complexity": 3, "iterations": 12, "depth": 5}
#: Models of categories.
CATEGORIES: dict[str, tuple[type, dict[str, Any], Any]] = {
    "counted": (CatBoostClassifier, {}, HEIGHT > 2),
    "combined": (CatBoostRegressor, {**DEEP, "nan_mode": "Max"}, HEIGHT),
    "exact": (CatBoostRegressor, {"one_hot_max_size": 99}, HEIGHT),
    "buckets": (
        CatBoostClassifier,
        {"simple_ctr": ["Buckets:Prior=0.3", "Counter"], "combinations_ctr": ["Buckets"]},
        np.digitize(HEIGHT, [1, 2, 3]),
    ),
    "means": (
        CatBoostRegressor,
        {"simple_ctr": ["BinarizedTargetMeanValue:TargetBorderCount=2", "Borders"]},
        HEIGHT,
    ),
    "several": (
        CatBoostRegressor,
        {"loss_function": "MultiRMSE", **DEEP},
        np.c_[HEIGHT, -(HEIGHT**2)],
    ),
    "grown": (CatBoostClassifier, {"grow_policy": "Lossguide"}, np.digitize(HEIGHT, [1, 2])),
}
#: Those that are also kept as JSON.
JSON = [*[*MODELS][:10], "combined", "buckets", "several", "grown"]


def answers(model: Any, rows: Any) -> dict[str, Any]:
    """The answers of a model, as the tests compare them."""
    if isinstance(model, CatBoostRegressor):
        return {"value": model.predict(rows).tolist()}
    return {
        "label": model.predict(rows).squeeze().tolist(),
        "probabilities": model.predict_proba(rows).tolist(),
        "scores": model.predict(rows, prediction_type="RawFormulaVal").tolist(),
    }


def written(model: Any, name: str) -> None:
    """Write a model; as JSON without what no importer reads."""
    model.save_model(str(HERE / f"{name}.cbm"))
    if name not in JSON:
        return
    path = HERE / f"{name}.json"
    model.save_model(str(path), format="json")
    data = json.loads(path.read_text())
    info = data["model_info"]
    info["params"] = {"loss_function": info["params"]["loss_function"]}
    data["features_info"].pop("cat_features_hash", None)
    for key in ("output_options", "training", "train_finish_time", "model_guid"):
        info.pop(key, None)
    for tree in data.get("oblivious_trees", ()):
        tree.pop("leaf_weights")
    path.write_text(json.dumps(data, indent=2) + "\n")


def main() -> None:
    """Train, and write models and answers."""
    rows = np.where(_rng.random((40, 4)) < 0.1, np.nan, _rng.normal(size=(40, 4)))
    rows = rows.astype(np.float32)
    found: dict[str, Any] = {}
    for name, (kind, settings, x, y) in MODELS.items():
        model = kind(**SETTINGS, **settings).fit(x, y)
        if name == "threshold":
            model.set_probability_threshold(0.3)
        written(model, name)
        found[name] = answers(model, rows)
    listed = [[None if v != v else v for v in row] for row in rows.tolist()]  # noqa: PLR0124 (NaN)
    given, of_tables = table(60, new=True), {}
    categorical = ["word", "place", "letter", "flag"]
    for name, (kind, settings, y) in CATEGORIES.items():
        model = kind(**{**SETTINGS, **settings}, cat_features=categorical).fit(TABLE, y)
        written(model, name)
        of_tables[name] = answers(model, given)
    kept = {"rows": listed, "answers": found, "table": given.to_dict("list")}
    kept |= {"of_tables": of_tables, "hashes": hashes()}
    (HERE / "answers.json").write_text(json.dumps(kept) + "\n")


def hashes() -> dict[str, int]:
    """CatBoost's own hashes of strings of all lengths."""
    words = sorted({*WORDS, *("né日本🎉x"[: n % 7] + "ab c" * (n // 4) for n in range(220))})
    pool = Pool([[word] for word in words], [*range(len(words))], cat_features=[0])
    model = CatBoostRegressor(**SETTINGS).fit(pool)
    path = HERE / "hashes.json"
    model.save_model(str(path), format="json", pool=pool)
    entries = json.loads(path.read_text())["features_info"]["cat_features_hash"]
    path.unlink()
    return {entry["value"]: entry["hash"] for entry in entries}


if __name__ == "__main__":
    main()
