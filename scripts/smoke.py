"""Trains, imports, bakes, predicts, saves and loads: what an installed wheel must do by itself.

python -I smoke.py ["llvmlite VERSION", if packs that were made with it are to be used]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from oven.compiler import cache, machine


def trained() -> tuple[Pipeline, np.ndarray]:
    """Return a fitted scaler and classifier, and rows to ask it about."""
    rng = np.random.default_rng(7)
    rows = rng.normal(3.0, 2.0, size=(200, 8))
    labels = np.where((rows - 3.0) @ rng.normal(size=8) > 0.0, "yes", "no")
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels), rows


def agree(plan: oven.Plan, pipeline: Pipeline, rows: np.ndarray) -> None:
    """Exit with a message unless the plan answers as the training library does."""
    answer = plan.run(rows)
    if list(answer["label"]) != list(pipeline.predict(rows)):
        sys.exit("smoke: the labels differ from scikit-learn's")
    np.testing.assert_allclose(answer["probabilities"], pipeline.predict_proba(rows), rtol=1e-12)


def main() -> None:
    """Run the whole way once, and the loaded plan once more."""
    for package in (flour, oven):
        if "site-packages" not in str(package.__file__):
            sys.exit(f"smoke: {package.__name__} came from {package.__file__}, not from the wheel")
    pipeline, rows = trained()
    plan = oven.bake(flour.from_sklearn(pipeline), background=False)
    agree(plan, pipeline, rows)
    agree(plan, pipeline, rows[:1])
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.pretzel"
        plan.save(path)
        agree(oven.load(path), pipeline, rows)
    taken = cache.counters.from_packs
    if sys.argv[1:] == [machine.version()] and not taken:
        sys.exit(f"smoke: no machine code came from the packs: {cache.counters}")
    print(f"smoke: {taken} functions from packs, {cache.counters.compiled} compiled")
    print("smoke: trained, imported, baked, predicted, saved, loaded: all well")


if __name__ == "__main__":
    main()
