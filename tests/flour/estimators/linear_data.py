"""Small problems for the estimators that are built on dot products."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

_rng = np.random.default_rng(11)
ROWS, COLUMNS = 90, 6
#: Six columns of different scale, the last of them constant.
X: Any = _rng.normal(size=(ROWS, COLUMNS)) * [1, 2, 0.5, 3, 1, 0] + [0, 1, 0, -2, 0, 1]
CSR: Any = sp.csr_matrix(np.where(_rng.random((ROWS, COLUMNS)) < 0.6, X, 0))
COUNTS: Any = _rng.integers(0, 5, size=(ROWS, COLUMNS))
POSITIVE: Any = np.abs(X) + 0.1
_hidden = X[:, :3] @ _rng.normal(size=(3, 3)) + 0.3 * _rng.normal(size=(ROWS, 3))
_hidden = (_hidden - _hidden.mean(axis=0)) / _hidden.std(axis=0)
#: Regression targets: one, several, one as a column, one that is never negative.
TARGET: Any = _hidden[:, 0]
TARGETS: Any = _hidden
COLUMN: Any = TARGET[:, None]
RATE: Any = np.exp(TARGET)
#: Class labels of every kind.
TWO: Any = (TARGET > 0.2).astype(int)
THREE: Any = np.argmax(_hidden, axis=1)
LABELS: dict[str, Any] = {
    "two": TWO,
    "bool": TWO.astype(bool),
    "negative": np.where(TWO, -7, -3),
    "words": np.array(["yes", "no"])[TWO],
    "floats": np.array([-1.0, 2.0])[TWO],
    "three": THREE,
    "unsorted": np.array([30, -10, 20])[THREE],
    "three_words": np.array(["pear", "apple", "fig"], object)[THREE],
}
INDICATOR: Any = (_hidden > 0.1).astype(int)
