"""The metrics of `Distances`: the term each column adds to a sum, and the distance from the sums.

Every function is one of numpy arrays and of native code alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy import sqrt, where

from flour.core.native import Code, written_as
from flour.core.words import Number


class ColumnPair(NamedTuple):
    """A column's numbers in the row and in the point, its weight, and the exponent."""

    x: Number
    y: Number
    w: Number
    p: Number


class MetricSums(NamedTuple):
    """The sums of a metric, the number of columns, and the exponent."""

    totals: Sequence[Number]
    columns: Number
    p: Number


class Metric(NamedTuple):
    """One way to measure distance, as sums over columns."""

    #: The terms that a column adds to the sums.
    terms: Callable[[ColumnPair], tuple[Number, ...]]
    #: The distance from the sums.
    finish: Callable[[MetricSums], Number]
    sums: tuple[int, ...] = (0,)
    #: How a term joins its sum.
    join: Callable[[Number, Number], Number] = np.add

    def added(self, totals: Sequence[Number], pair: ColumnPair) -> list[Number]:
        """The sums after one more column."""
        pairs = zip(totals, self.terms(pair), strict=True)
        return [self.join(total, term) for total, term in pairs]


@written_as(lambda _, top, bottom: Code(f"({top} / {bottom} if {bottom} != 0.0 else 0.0)"))
def ratio(top: Number, bottom: Number) -> Number:
    """top / bottom, zero where bottom is zero."""
    fine = bottom != 0
    return np.where(fine, top / np.where(fine, bottom, 1), 0.0)


# --- terms ----------------------------------------------------------------------------------------


def squared(a: ColumnPair) -> tuple[Number, ...]:
    """The squared difference."""
    return ((a.x - a.y) * (a.x - a.y),)


def apart(a: ColumnPair) -> tuple[Number, ...]:
    """The difference."""
    return (abs(a.x - a.y),)


def weighted_power(a: ColumnPair) -> tuple[Number, ...]:
    """A power of the difference, times the weight."""
    return (a.w * abs(a.x - a.y) ** a.p,)


def scaled_square(a: ColumnPair) -> tuple[Number, ...]:
    """The squared difference over the variance."""
    return ((a.x - a.y) * (a.x - a.y) / a.w,)


def relative(a: ColumnPair) -> tuple[Number, ...]:
    """The difference over both magnitudes."""
    return (ratio(abs(a.x - a.y), abs(a.x) + abs(a.y)),)


def apart_and_both(a: ColumnPair) -> tuple[Number, ...]:
    """The difference and both magnitudes, each for a sum of its own."""
    return abs(a.x - a.y), abs(a.x) + abs(a.y)


def unequal(a: ColumnPair) -> tuple[Number, ...]:
    """One where the numbers differ."""
    return (where(a.x != a.y, 1.0, 0.0),)


def chi_squared(a: ColumnPair) -> tuple[Number, ...]:
    """The squared difference over the sum: for histograms."""
    return (ratio((a.x - a.y) * (a.x - a.y), a.x + a.y),)


# --- distances from sums --------------------------------------------------------------------------


def itself(s: MetricSums) -> Number:
    """The only sum."""
    return s.totals[0]


def root(s: MetricSums) -> Number:
    """The square root of the sum."""
    return sqrt(s.totals[0])


def power_root(s: MetricSums) -> Number:
    """The root of the sum whose power the terms are."""
    return s.totals[0] ** (1.0 / s.p)


def quotient(s: MetricSums) -> Number:
    """The first sum over the second."""
    return ratio(s.totals[0], s.totals[1])


def mean(s: MetricSums) -> Number:
    """The sum over the number of columns."""
    return s.totals[0] / s.columns


METRICS: dict[str, Metric] = {
    "sqeuclidean": Metric(squared, itself),
    "euclidean": Metric(squared, root),
    "manhattan": Metric(apart, itself),
    "chebyshev": Metric(apart, itself, join=np.maximum),
    "minkowski": Metric(weighted_power, power_root),
    "seuclidean": Metric(scaled_square, root),
    "canberra": Metric(relative, itself),
    "braycurtis": Metric(apart_and_both, quotient, sums=(0, 1)),
    "hamming": Metric(unequal, mean),
    # The distance behind the chi2 kernels.
    "chi2": Metric(chi_squared, itself),
}
