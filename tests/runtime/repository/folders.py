"""Models of other libraries in the layouts of other servers, for tests of the repository."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import flour
import oven
from tests.runtime.plans import shift_flow

WIDTH = 4
rng = np.random.default_rng(0)
X: NDArray[np.float32] = rng.normal(size=(120, WIDTH)).astype(np.float32)
X[5, 1] = np.nan
TWO = (X[:, 0] > 0).astype(int)
THREE = rng.integers(0, 3, len(X))
NUMBERS = np.nan_to_num(X).sum(axis=1).astype(float)


@cache
def xgb(kind: str) -> Any:
    """A small fitted model of XGBoost: "two" or "three" classes, or "number"."""
    import xgboost

    if kind == "number":
        return xgboost.XGBRegressor(n_estimators=6, max_depth=3).fit(X, NUMBERS)
    return xgboost.XGBClassifier(n_estimators=6, max_depth=3).fit(
        X, TWO if kind == "two" else THREE
    )


@cache
def lgb(kind: str) -> Any:
    """A small booster of LightGBM, of the same kinds."""
    import lightgbm

    objective = {"two": "binary", "three": "multiclass", "number": "regression"}[kind]
    facts: dict[str, Any] = {"objective": objective, "verbose": -1, "num_leaves": 5}
    if kind == "three":
        facts["num_class"] = 3
    target = {"two": TWO, "three": THREE, "number": NUMBERS}[kind]
    return lightgbm.train(facts, lightgbm.Dataset(X, target), 6)


def save_plan(path: Path, offset: float, width: int = WIDTH) -> None:
    """A plan that adds `offset`, as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    oven.bake(shift_flow(offset, width)).save(path, durable=False)


def age(path: Path, seconds: float = 60.0) -> None:
    """Let a file look as if nobody had touched it for a while."""
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - int(seconds * 1e9)))


def mlserver(place: Path, implementation: str, **facts: Any) -> None:
    """Settings as MLServer's users write them."""
    place.mkdir(parents=True, exist_ok=True)
    settings = {"name": place.name, "implementation": implementation, **facts}
    (place / "model-settings.json").write_text(json.dumps(settings), encoding="utf-8")


def fil(place: Path, model_type: str, columns: int, **parameters: str) -> None:
    """A configuration as Triton's users write them."""
    place.mkdir(parents=True, exist_ok=True)
    entries = "\n".join(
        f'  {{ key: "{key}" value: {{ string_value: "{value}" }} }},'
        for key, value in {"model_type": model_type, **parameters}.items()
    )
    (place / "config.pbtxt").write_text(
        f"""\
backend: "fil"
max_batch_size: 32768
input [ {{ name: "input__0" data_type: TYPE_FP32 dims: [ {WIDTH} ] }} ]
output [ {{ name: "output__0" data_type: TYPE_FP32 dims: [ {columns} ] }} ]
instance_group [{{ kind: KIND_AUTO }}]
parameters [
{entries.rstrip(",")}
]
dynamic_batching {{}}
""",
        encoding="utf-8",
    )


def scorer() -> flour.Flow:
    """Text in, a number out."""
    return (
        flour.text("review")
        .tokenize()
        .word_ngrams(["good", "bad"], 1, 1)
        .linear([[1.0, -1.0]], [0.0])
    )
