"""Conformal predictors of MAPIE and crepes, in memory and from their pickles."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

import pretzel
from flour.core.errors import ImportRefused

pytestmark = pytest.mark.integrations
pytest.importorskip("mapie")
pytest.importorskip("crepes")

RNG = np.random.default_rng(3)
X = RNG.normal(size=(900, 4))
Y = X[:, 0] - X[:, 1] + RNG.normal(size=900)
KINDS = np.array(["low", "middle", "high"])[np.digitize(Y, [-1, 1])]


def both(model: object, tmp_path: Path) -> list[pretzel.Model]:
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    sources = (model, tmp_path / "model.pkl")
    return [pretzel.compile(source, sample=X[:5]) for source in sources]


@pytest.mark.parametrize("levels", [0.9, [0.8, 0.95]])
def test_mapies_intervals(levels: float | list[float], tmp_path: Path) -> None:
    from mapie.regression import SplitConformalRegressor

    made = SplitConformalRegressor(Ridge(), confidence_level=levels, prefit=False)
    made = made.fit(X[:300], Y[:300]).conformalize(X[300:600], Y[300:600])
    value, ends = made.predict_interval(X[600:])
    for model in both(made, tmp_path):
        found = model.run(X[600:])
        assert np.allclose(found["value"], value, rtol=1e-12)
        for name, place in (("lower", 0), ("upper", 1)):
            assert np.allclose(found[name].reshape(300, -1), ends[:, place], rtol=1e-12)


@pytest.mark.parametrize("kind", [LogisticRegression, RandomForestClassifier])
def test_mapies_sets(kind: type, tmp_path: Path) -> None:
    from mapie.classification import SplitConformalClassifier

    made = SplitConformalClassifier(kind(), confidence_level=0.9, prefit=False)
    made = made.fit(X[:300], KINDS[:300]).conformalize(X[300:600], KINDS[300:600])
    label, inside = made.predict_set(X[600:])
    for model in both(made, tmp_path):
        found = model.run(X[600:])
        assert np.array_equal(found["label"], label)
        assert np.array_equal(found["set"], inside[:, :, 0])


def test_mapies_other_scores_are_refused() -> None:
    from mapie.classification import SplitConformalClassifier

    made = SplitConformalClassifier(LogisticRegression(), conformity_score="aps", prefit=False)
    made = made.fit(X[:300], KINDS[:300]).conformalize(X[300:600], KINDS[300:600])
    with pytest.raises(ImportRefused, match="APSConformityScore"):
        pretzel.compile(made, sample=X[:5])


def test_crepes_intervals(tmp_path: Path) -> None:
    from crepes import WrapRegressor

    made = WrapRegressor(Ridge())
    made.fit(X[:300], Y[:300])
    made.calibrate(X[300:600], Y[300:600])
    ends = made.predict_int(X[600:])
    for model in both(made, tmp_path):
        found = model.run(X[600:])
        assert np.allclose(np.stack([found["lower"], found["upper"]], axis=1), ends, rtol=1e-12)
