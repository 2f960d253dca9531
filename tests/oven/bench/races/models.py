"""The ensembles that race: trained once, kept as the files that contestants read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import lightgbm as lgb
import numpy as np
import xgboost as xgb
from sklearn.ensemble import RandomForestClassifier

import flour
from flour.core.node import topological
from flour.ops.trees.lockstep import NodeTable
from flour.ops.trees.trees import Trees
from tests.house import ROOT

ROWS, COLUMNS = 5000, 40
MTPL2 = ROOT.parent / "shared" / "data" / "models" / "lightgbm" / "lleaves" / "mtpl2__model.txt"
#: Where models, and what compilers make of them, are kept between runs.
PLACE = Path(os.environ.get("PRETZEL_CACHE", ROOT / ".cache" / "code")).parent / "races"
Model = dict[str, Any]


def data(rows: int = 12000) -> tuple[Any, Any]:
    """Forty columns, a dozen of which say something."""
    rng = np.random.default_rng(0)
    block = rng.normal(size=(rows, COLUMNS))
    signal = block[:, :10] @ rng.normal(size=10) + 2 * np.sin(3 * block[:, 10])
    return block, (signal + block[:, 11] * block[:, 12] + rng.normal(size=rows) > 0).astype(int)


def light(path: Path, trees: int, leaves: int) -> None:
    """A LightGBM model of two classes."""
    block, label = data()
    how = {"objective": "binary", "num_leaves": leaves, "verbose": -1, "num_threads": 1}
    made = lgb.train({**how, "learning_rate": 0.05}, lgb.Dataset(block, label), trees)
    made.save_model(path)


def with_categories(path: Path) -> None:
    """1,000 trees of 31 leaves, a quarter of the tests for sets: a public model, or one alike."""
    if MTPL2.is_file():
        text, _, _ = MTPL2.read_text().rpartition("pandas_categorical")  # so it takes codes
        path.write_text(f"{text}pandas_categorical:null\n")
        return
    block, label = data()
    block[:, :5] = np.floor(np.abs(block[:, :5]) * 10)
    how = {"objective": "binary", "num_leaves": 31, "verbose": -1, "num_threads": 1}
    sets = lgb.Dataset(block[:, :15], label, categorical_feature=[0, 1, 2, 3, 4])
    lgb.train(how, sets, 1000).save_model(path)


def boosted(path: Path) -> None:
    """An XGBoost model of 300 trees of depth 8."""
    block, label = data()
    how = {"objective": "binary:logistic", "max_depth": 8, "nthread": 1}
    xgb.train(how, xgb.DMatrix(block, label), 300).save_model(path)


def forest(path: Path, trees: int, depth: int | None) -> None:
    """A random forest."""
    model = RandomForestClassifier(trees, max_depth=depth, n_jobs=2, random_state=0)
    joblib.dump(model.fit(*data()), path)


#: Name, what reads it, the ending of its file, what makes it.
MODELS: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "LightGBM 100 x 31": ("lightgbm", "txt", lambda path: light(path, 100, 31)),
    "LightGBM 500 x 63": ("lightgbm", "txt", lambda path: light(path, 500, 63)),
    "LightGBM 1000 x 31, categories": ("lightgbm", "txt", with_categories),
    "XGBoost 300 x depth 8": ("xgboost", "json", boosted),
    "forest 100 x depth 8": ("forest", "joblib", lambda path: forest(path, 100, 8)),
    "forest 500, unlimited": ("forest", "joblib", lambda path: forest(path, 500, None)),
}


def ready(name: str) -> Model:
    """The model's file, rows, and what contestants are told of them."""
    kind, ending, make = MODELS[name]
    folder = PLACE / name.replace(" ", "_").replace(",", "")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"model.{ending}"
    if not path.exists():
        make(path)
    flow = _program(kind, path)
    nodes = topological(list(flow.outputs.values()))
    (op,) = (item.op for item in nodes if isinstance(item.op, Trees))
    width = flow.inputs()["X"].width  # type: ignore[union-attr]  # a vector
    rows = _rows(width, kind)
    np.save(folder / "rows.npy", rows)
    np.savez(folder / "tables.npz", **_tables(op))
    return {
        "kind": kind,
        "path": str(path),
        "build": str(folder),
        "rows": str(folder / "rows.npy"),
        "tables": str(folder / "tables.npz"),
        "source": str(Path(__file__).with_name("trees.c")),
        "root": str(ROOT),
        "columns": width,
        "nodes": len(op.feature),
        "sets": len(op.words),
    }


def _program(kind: str, path: Path) -> flour.Flow:
    if kind == "forest":
        return flour.from_sklearn(joblib.load(path))
    return {"lightgbm": flour.from_lightgbm, "xgboost": flour.from_xgboost}[kind](path)


def _rows(width: int, kind: str) -> Any:
    """Rows like those of training; whole numbers where there are categories."""
    if width == COLUMNS:
        rows = data()[0][:ROWS]
        return rows if kind == "lightgbm" else rows.astype(np.float32)
    return np.floor(np.abs(np.random.default_rng(0).normal(size=(ROWS, width))) * 20)


def _tables(op: Trees) -> dict[str, Any]:
    """The ensemble as the hand-written C reads it."""
    table = NodeTable(op)
    node = np.dtype([("threshold", "f8"), ("column", "i4"), ("left", "i4")])
    made = np.zeros(len(table.order), node)
    here = np.arange(len(table.order))
    threshold = table.thresholds()
    assert threshold is not None
    made["threshold"] = np.where(table.inner, threshold, np.inf)
    made["column"] = np.where(table.inner, table.feature, 0)
    made["left"] = np.where(table.inner, table.child(op.left), here)
    value = np.zeros(len(table.order))
    value[~table.inner] = np.asarray(op.value.array)[table.left[~table.inner], -1]
    # The base is in every leaf of the first tree.
    end = table.roots[1] if len(table.roots) > 1 else len(value)
    value[:end][~table.inner[:end]] += np.asarray(op.base.array)[-1]
    value /= op.divisor or 1
    depth = np.zeros(len(table.order), np.int32)
    for at in here[::-1][table.inner[::-1]]:  # children stand behind their parents
        depth[at] = 1 + max(depth[made["left"][at]], depth[made["left"][at] + 1])
    roots = np.stack([table.roots, depth[table.roots]], axis=1).astype(np.int32)
    return {"nodes": made, "roots": roots, "value": value}
