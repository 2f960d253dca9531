"""GBT: boosted trees as LightGBM trains them: 100 trees of 31 leaves over 30 columns.

Above a scale of 1 they are larger: 500 trees of 63 leaves at 5.

Every contestant runs the trees of the same model file. What stands under "scikit-learn" is the
scikit-learn interface of LightGBM, which is what people call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.inputs import NUMBERS, Inputs
from bench.workload import Made, Spec
from bench.workloads.ac import numbers

WIDTH = 30


def make(spec: Spec) -> Made:
    """Binary classifiers, one shape, their own trees."""
    rows = numbers(spec.seed, 1000, WIDTH)
    return Made(Inputs(NUMBERS, rows), _pipelines(spec), {"answers": "probability", "width": WIDTH})


def _pipelines(spec: Spec) -> Iterator[Any]:
    from lightgbm import LGBMClassifier

    trees = max(10, int(100 * max(spec.scale, min(1.0, 10 * spec.scale))))
    leaves = 63 if spec.scale > 1 else 31
    for number in range(spec.count):
        seed = spec.seed * 10_007 + number
        rng = np.random.default_rng(seed)
        rows = numbers(seed + 1, 3000, WIDTH)
        one, two, three = rng.permutation(WIDTH)[:3]
        risk = rows[:, one] * rows[:, two] + np.sin(3 * rows[:, three]) + rows[:, three] / 2
        labels = (risk + rng.normal(scale=0.3, size=len(rows)) > 0).astype(int)
        yield LGBMClassifier(
            n_estimators=trees, num_leaves=leaves, n_jobs=1, verbose=-1, random_state=seed
        ).fit(rows, labels)
