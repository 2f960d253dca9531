"""The risk graph that servers are raced with, as scikit-learn has it: its steps, read from a file.

Features of a row go to two models, whose answers are combined, and held against a threshold. In the
servers raced with ours each step is a service, deployment or model of its own, as their documents
compose graphs; ours reads the same steps from the same file.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

#: What the models weigh, and the score from which a row is refused.
WEIGHTS, THRESHOLD = (0.7, 0.3), 0.5
WIDTH = 8


class Parts(NamedTuple):
    """The fitted steps."""

    features: Any
    linear: Any
    trees: Any


def read(file: str) -> Parts:
    """The steps in a file."""
    return Parts(*pickle.loads(Path(file).read_bytes()))


def write(file: Path) -> Parts:
    """Train the steps, and keep them in a file."""
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    rows, labels = sample()
    features = make_pipeline(StandardScaler(), PolynomialFeatures(2)).fit(rows)
    inside = features.transform(rows)
    made = Parts(
        features,
        LogisticRegression(max_iter=200).fit(inside, labels),
        GradientBoostingClassifier(n_estimators=50, random_state=0).fit(inside, labels),
    )
    file.write_bytes(pickle.dumps(tuple(made)))
    return made


def sample() -> tuple[Any, Any]:
    """Rows to train on, and their labels."""
    import numpy as np

    rows = np.random.default_rng(0).normal(size=(500, WIDTH))
    return rows, (rows[:, 0] * rows[:, 1] + rows[:, 2] > 0).astype(int)


def combined(linear: float, trees: float) -> float:
    """The score of a row."""
    return WEIGHTS[0] * linear + WEIGHTS[1] * trees


def answer(score: float) -> dict[str, Any]:
    """The body of an answer: the score, and whether the row is approved."""
    return {"outputs": [{"name": "decision", "data": [score, float(score < THRESHOLD)]}]}


def expected(parts: Parts, row: Sequence[float]) -> float:
    """What the steps say when they are called by hand."""
    inside = parts.features.transform([row])
    return combined(
        *(float(model.predict_proba(inside)[0, 1]) for model in (parts.linear, parts.trees))
    )
