"""A champion and its shadow, as scikit-learn has them, that servers are raced with.

Both are pipelines with the same preparation; the shadow ends in trees. In the servers raced with
ours each is a service, deployment or model of its own, and what clients call asks the champion,
answers, and has the shadow asked after that. Without the shadow, only the champion is asked.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.servers.graph_parts import WIDTH, sample

__all__ = ["ALONE", "SHADOWED", "WIDTH", "Parts", "answer", "probability", "read", "write"]

#: What a server is told after the file: whether there is a shadow.
ALONE, SHADOWED = "alone", "shadowed"


class Parts(NamedTuple):
    """The fitted pipelines."""

    champion: Any
    shadow: Any


def read(file: str) -> Parts:
    """The pipelines in a file."""
    return Parts(*pickle.loads(Path(file).read_bytes()))


def write(file: Path) -> Parts:
    """Train the pipelines, and keep them in a file."""
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    rows, labels = sample()
    last = LogisticRegression(max_iter=200), GradientBoostingClassifier(random_state=0)
    made = Parts(
        *(
            make_pipeline(StandardScaler(), PolynomialFeatures(2), each).fit(rows, labels)
            for each in last
        )
    )
    file.write_bytes(pickle.dumps(tuple(made)))
    return made


def answer(probability: float) -> dict[str, Any]:
    """The body of an answer."""
    return {"outputs": [{"name": "probabilities", "data": [1.0 - probability, probability]}]}


def probability(model: Any, row: Sequence[float]) -> float:
    """What a pipeline says of a row."""
    return float(model.predict_proba([row])[0, 1])
