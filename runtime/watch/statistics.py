"""Distances of a window's counts from the reference's: PSI, Kolmogorov-Smirnov, chi-square."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from runtime.routing.shares import LEAST_SHARE, psi
from runtime.watch.sketch import Counts, NumbersSketch, Sketch


class Window(NamedTuple):
    """Counts of a column by bin, what is missing in the last one; those of a reference and now.

    Of numbers, the bins at both ends are beyond the reference's range; of words, the last but one
    has those that the reference does not.
    """

    column: str
    is_numbers: bool
    reference: Counts
    counts: Counts


#: Rows of a window from which on it may alarm.
ALARMING = 500


class Drift(NamedTuple):
    """A column of a window against the reference."""

    column: str
    rows: int
    psi: float
    """0.1 is commonly called a small shift, 0.2 one to be looked at."""
    ks: float | None
    """The largest distance of the cumulative shares at the bins' ends; None for words. Of what is
    there: values that are missing count in none. It is 1 where all are."""
    chi_square: float
    p_value: float
    """The probability of such a chi-square if both have the same shares."""
    missing: float
    """The share of missing values beyond that of the reference."""
    unseen: float
    """The share of words that the reference does not have."""
    beyond: float = 0.0
    """The share of numbers out of the reference's range."""
    psi_error: float = 0.0
    """The standard error of the PSI, which few rows make large."""
    ks_error: float | None = None
    """The standard error of the distance; as far apart as this are samples of the same, too."""

    @property
    def alarms(self) -> bool:
        """True if the column has moved, and the window has rows enough to say so.

        Its PSI is above 0.2, beyond two of its errors; or a part of it is beyond the reference, a
        twentieth, or less where samples of the same are hardly so.
        """
        moved = self.psi > max(0.2, 2 * self.psi_error)
        new = self.unseen + self.beyond > (0.005 if self.p_value < 1e-6 else 0.05)
        return self.rows >= ALARMING and (moved or new)

    @property
    def score(self) -> float:
        """Sort key of columns: PSI, and the shares newly missing, unseen or out of range."""
        return self.psi + max(self.missing, 0.0) + self.unseen + self.beyond


def window(column: str, sketch: Sketch, counts: Counts, missing: int) -> Window:
    """A window's counts beside those of a sketch."""
    old, new = np.append(sketch.counts, sketch.missing), np.append(counts, missing)
    return Window(column, isinstance(sketch, NumbersSketch), old, new)


def drift(column: str, sketch: Sketch, counts: Counts, missing: int) -> Drift:
    """Compare a window's counts with a sketch."""
    return drift_of(window(column, sketch, counts, missing))


def drift_of(of: Window) -> Drift:
    """Compare a window's counts with its reference's."""
    old, new = of.reference, of.counts
    rows = int(new.sum())
    statistic, p_value = chi_square(old, new)
    # Some numbers of the reference's own kind are beyond its ends, which are those of a sample.
    ends = of.is_numbers and len(new) > 3 and not (old[0] or old[-2])
    beyond = int(new[0] + new[-2]) if ends else 0
    gone = rows and old[:-1].any() and not new[:-1].any()  # nothing is as far as it can be
    distance = 1.0 if gone else ks(old[:-1], new[:-1])
    return Drift(
        of.column,
        rows,
        psi(old, new),
        distance if of.is_numbers else None,
        statistic,
        p_value,
        int(new[-1]) / max(rows, 1) - int(old[-1]) / max(int(old.sum()), 1),
        0.0 if of.is_numbers else int(new[-2]) / max(rows, 1),
        beyond / max(rows, 1),
        psi_error(old, new),
        ks_error(old[:-1], new[:-1]) if of.is_numbers else None,
    )


def psi_error(reference: Counts, window: Counts) -> float:
    """The standard error of the PSI of two samples.

    By the delta method, and with the spread of a chi-square where both have the same shares.
    """
    sizes = int(reference.sum()), int(window.sum())
    if not all(sizes):
        return 0.0
    old, new = (np.maximum(each / each.sum(), LEAST_SHARE) for each in (reference, window))
    steps = np.log(new / old) + 1 - old / new, np.log(old / new) + 1 - new / old
    spread = [
        float((share * step**2).sum() - (share * step).sum() ** 2) / size
        for share, step, size in zip((new, old), steps, sizes[::-1], strict=True)
    ]
    same = 2 * (len(old) - 1) * (1 / sizes[0] + 1 / sizes[1]) ** 2
    return math.sqrt(max(sum(spread), 0.0) + same)


def ks_error(reference: Counts, window: Counts) -> float:
    """The standard error of the distance of two samples of the same values."""
    sizes = int(reference.sum()), int(window.sum())
    return math.sqrt(sum(1 / each for each in sizes)) / 2 if all(sizes) else 0.0


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
    # The chance that a chi-square variable is larger: a finite sum.
    freedom = table.shape[1] - 1
    half = statistic / 2
    odd = freedom % 2
    total = math.erfc(math.sqrt(half)) if odd else 0.0
    term = math.sqrt(half / math.pi) * 2 * math.exp(-half) if odd else math.exp(-half)
    for step in range(freedom // 2):
        total += term
        term *= half / (step + 1.5 if odd else step + 1)
    return statistic, min(total, 1.0)
