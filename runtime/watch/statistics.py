"""How far a window's counts are from the reference's: PSI, Kolmogorov-Smirnov, chi-square."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from runtime.routing.shares import psi
from runtime.watch.sketch import Counts, Numbers, Sketch


class Window(NamedTuple):
    """Counts of a column by bin, what is missing in the last one; those of a reference and now."""

    column: str
    is_numbers: bool
    reference: Counts
    counts: Counts


class Drift(NamedTuple):
    """A column of a window against the reference."""

    column: str
    rows: int
    psi: float
    """0.1 is commonly called a small shift, 0.2 one to be looked at."""
    ks: float | None
    """The largest distance of the cumulative shares at the bins' ends; None for words."""
    chi_square: float
    p_value: float
    """How likely such a chi-square is if both have the same shares."""
    missing: float
    """The share of missing values beyond that of the reference."""
    unseen: float
    """The share of words that the reference does not have."""

    @property
    def score(self) -> float:
        """What columns are ordered by: PSI, and what is newly missing or unseen."""
        return self.psi + max(self.missing, 0.0) + self.unseen


def window(column: str, sketch: Sketch, counts: Counts, missing: int) -> Window:
    """A window's counts beside those of a sketch."""
    old, new = np.append(sketch.counts, sketch.missing), np.append(counts, missing)
    return Window(column, isinstance(sketch, Numbers), old, new)


def drift(column: str, sketch: Sketch, counts: Counts, missing: int) -> Drift:
    """Compare a window's counts with a sketch."""
    return drift_of(window(column, sketch, counts, missing))


def drift_of(of: Window) -> Drift:
    """Compare a window's counts with its reference's."""
    old, new = of.reference, of.counts
    rows = int(new.sum())
    statistic, p_value = chi_square(old, new)
    return Drift(
        of.column,
        rows,
        psi(old, new),
        ks(old, new) if of.is_numbers else None,
        statistic,
        p_value,
        int(new[-1]) / max(rows, 1) - int(old[-1]) / max(int(old.sum()), 1),
        0.0 if of.is_numbers else int(new[-2]) / max(rows, 1),
    )


def ks(reference: Counts, window: Counts) -> float:
    """The two-sample Kolmogorov-Smirnov statistic of values that were put in bins."""
    if not (reference.sum() and window.sum()):
        return 0.0
    old, new = np.cumsum(reference) / reference.sum(), np.cumsum(window) / window.sum()
    return float(np.abs(old - new).max())


def chi_square(reference: Counts, window: Counts) -> tuple[float, float]:
    """Pearson's statistic for two histograms having the same shares, and its p-value."""
    table = np.array([reference, window], np.float64)
    table = table[:, table.sum(0) > 0]
    if table.shape[1] < 2 or not table.sum(1).all():
        return 0.0, 1.0
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    return statistic, _beyond(statistic, table.shape[1] - 1)


def _beyond(statistic: float, freedom: int) -> float:
    """The chance that a chi-square variable is larger: a finite sum."""
    half = statistic / 2
    odd = freedom % 2
    total = math.erfc(math.sqrt(half)) if odd else 0.0
    term = math.sqrt(half / math.pi) * 2 * math.exp(-half) if odd else math.exp(-half)
    for step in range(freedom // 2):
        total += term
        term *= half / (step + 1.5 if odd else step + 1)
    return min(total, 1.0)
