"""TAB: a data frame with holes and categories -> impute, scale, one-hot -> a classifier.

Half of the pipelines end in a logistic regression, half in boosted trees on histograms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.inputs import TABLE, Inputs, Table
from bench.workload import Made, Spec

NUMERIC = ("age", "income", "balance", "duration", "visits", "score")
CATEGORIES = {
    "city": [f"city{n:02d}" for n in range(24)],
    "plan": ["free", "basic", "plus", "pro"],
    "device": ["phone", "tablet", "laptop", "desktop", "other"],
    "channel": ["ads", "mail", "search", "friend"],
}
_HOLES = 0.05


def make(spec: Spec) -> Made:
    """Rows are records with missing numbers."""
    inputs = Inputs(TABLE, table(spec.seed, 1000))
    facts = {"answers": "probability", "categories": CATEGORIES}
    return Made(inputs, _pipelines(spec), facts)


def table(seed: int, count: int) -> Table:
    """Customers: numbers that float32 holds exactly, some missing, and four categories."""
    rng = np.random.default_rng(seed)
    drawn = rng.gamma(2.0, 20.0, size=(count, len(NUMERIC))).astype(np.float32).astype(float)
    holes = rng.random(drawn.shape) < _HOLES
    words = [rng.choice(each, count).tolist() for each in CATEGORIES.values()]
    rows = [
        [None if hole else value for value, hole in zip(values.tolist(), gone, strict=True)]
        + [column[place] for column in words]
        for place, (values, gone) in enumerate(zip(drawn, holes, strict=True))
    ]
    return Table((*NUMERIC, *CATEGORIES), frozenset(NUMERIC), rows)


def _pipelines(spec: Spec) -> Iterator[Any]:
    from sklearn.pipeline import make_pipeline

    for number in range(spec.count):
        seed = spec.seed * 10_007 + number
        inputs = Inputs(TABLE, table(seed + 1, 600))
        frame = inputs.frame(0, len(inputs))
        rng = np.random.default_rng(seed)
        risk = np.nan_to_num(frame["age"].to_numpy() - frame["visits"].to_numpy())
        risk = risk + 20 * (frame["plan"] == "pro").to_numpy() + rng.normal(scale=20, size=600)
        labels = (risk > np.median(risk)).astype(int)
        yield make_pipeline(_columns(), _classifier(number, seed)).fit(frame, labels)


def _columns() -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer(
        [("numbers", numbers, list(NUMERIC)), ("words", words, list(CATEGORIES))]
    )


def _classifier(number: int, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    if number % 2 == 0:
        return LogisticRegression(max_iter=500)
    return HistGradientBoostingClassifier(max_iter=50, random_state=seed)
