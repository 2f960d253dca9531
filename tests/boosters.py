"""Small LightGBM and XGBoost models for tests, and what they are fitted on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Settings under which models of few rows have splits, and answer alike everywhere.
LIGHT = {"n_jobs": 1, "verbose": -1, "min_child_samples": 5}
GROWN = {"n_jobs": 1, "max_depth": 3}
#: For parametrisations over the makers of both libraries.
LIBRARIES = ("lightgbm", "xgboost")


def maker(default: type[Any], **usual: Any) -> Callable[..., Any]:
    """What makes unfitted models: of this class if no other is asked for, with these settings."""

    def make(kind: type[Any] = default, **how: Any) -> Any:
        return kind(**{**usual, **how})

    return make


class Sample(NamedTuple):
    """Five columns, the same with holes, and what depends on them; where more chance comes from."""

    rng: np.random.Generator
    X: NDArray[np.float64]
    holes: NDArray[np.float64]
    y: NDArray[np.float64]


def sample(seed: int, rows: int) -> Sample:
    """Rows on which trees have something to learn."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 5))
    holes = np.where(rng.random(X.shape) < 0.1, np.nan, X)
    return Sample(rng, X, holes, X[:, 0] - 2 * X[:, 1] + X[:, 2] * X[:, 3])
