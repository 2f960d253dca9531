"""A folder of small models and rows for them, and a way to run the command in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from runtime.cli import main
from tests.runtime.repository.folders import X, lgb, save_plan, xgb


class Ran(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The result of a command with --json."""
        return json.loads(self.out)


Pretzel = Callable[..., Ran]


@pytest.fixture
def pretzel(capsys: pytest.CaptureFixture[str]) -> Pretzel:
    """Run `pretzel` with these arguments, in this process."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return Ran(int(code), said.out, said.err)

    return run


class Place(NamedTuple):
    """Where things are."""

    root: Path
    models: Path
    pipeline: Any
    frame: Any


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Models of every kind with rows; nobody writes here."""
    root = tmp_path_factory.mktemp("cli")
    xgb("two").save_model(root / "booster.ubj")
    xgb("three").save_model(root / "three.json")
    lgb("number").save_model(root / "trees.txt")
    np.savetxt(root / "rows.csv", X, delimiter=",")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"row {n}" for n in range(len(X))],
            "age": np.nan_to_num(X[:, 1].astype(float)),
            "city": rng.choice(["Graz", "Cork, Ireland", "Łódź"], len(X)),
        }
    )
    columns = [("age", StandardScaler(), ["age"]), ("city", OneHotEncoder(), ["city"])]
    pipeline = make_pipeline(ColumnTransformer(columns), LogisticRegression())
    pipeline.fit(frame[["age", "city"]], np.where(X[:, 0] > 0, "yes", "no"))
    joblib.dump(pipeline, root / "mixed.joblib")
    frame.to_csv(root / "mixed.csv", index=False)
    frame.to_parquet(root / "mixed.parquet")
    frame.to_json(root / "mixed.jsonl", orient="records", lines=True, force_ascii=False)
    models = root / "models"
    save_plan(models / "shift" / "1" / "shift.pretzel", 1.0)
    save_plan(models / "shift" / "2" / "shift.pretzel", 2.0)
    (models / "broken.pretzel").write_bytes(b"no plan")
    return Place(root, models, pipeline, frame)
