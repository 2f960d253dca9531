"""LIN: scaled columns and a logistic regression, the smallest model people serve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.inputs import NUMBERS, Inputs
from bench.workload import Made, Spec
from bench.workloads.ac import numbers

WIDTH = 20


def make(spec: Spec) -> Made:
    """All pipelines are of one shape and have fitted numbers of their own."""
    rows = numbers(spec.seed, 1000, WIDTH)
    return Made(Inputs(NUMBERS, rows), _pipelines(spec), {"answers": "probability", "width": WIDTH})


def _pipelines(spec: Spec) -> Iterator[Any]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    for number in range(spec.count):
        seed = spec.seed * 10_007 + number
        rng = np.random.default_rng(seed)
        rows = numbers(seed + 1, 300, WIDTH) * rng.uniform(0.5, 2, WIDTH) + rng.normal(size=WIDTH)
        noise = rng.normal(size=len(rows))
        labels = (rows @ rng.normal(size=WIDTH) + noise > 0).astype(int)
        if labels.min() == labels.max():
            labels[0] = 1 - labels[0]
        yield make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels)
