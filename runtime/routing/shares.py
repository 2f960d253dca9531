"""The distance between the shares of two histograms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
#: The least share of a bin in PSI, so that an empty bin is no infinite distance.
LEAST_SHARE = 1e-4


def psi(reference: Counts, window: Counts) -> float:
    """The population stability index of two histograms."""
    if not (reference.sum() and window.sum()):
        return 0.0
    old = np.maximum(reference / reference.sum(), LEAST_SHARE)
    new = np.maximum(window / window.sum(), LEAST_SHARE)
    return float(((new - old) * np.log(new / old)).sum())
