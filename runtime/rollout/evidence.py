"""Evidence against a rate: tests that stay valid however often one looks.

Of n values between 0 and 1 with the sum k, `against_at_most(k, n, q)` says how much speaks against
their mean being at most q. For any factor m > 1 and such a mean, m ** x is at most 1 + x (m - 1),
so that m ** k / (1 + q (m - 1)) ** n is a supermartingale; for rates it is the likelihood of odds m
times as large by that of q. The mean over some factors is one, too, and by Ville's inequality it
ever reaches 1 / alpha with a probability of alpha at most. Factors below 1 do the same for means of
at least q.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log, log1p

#: What a rate is suspected of: odds so many times as large, or as small.
FACTORS = (1.5, 2.0, 3.0, 10.0)
#: The same for bounds, which are to be tight where there are many values.
_CLOSE = (1.02, 1.05, 1.1, 1.2, 1.5, 2.5)
#: Bisections of a bound: it is told to nine digits.
_STEPS = 40


def against_at_most(total: float, count: int, rate: float) -> float:
    """The logarithm of what speaks against a mean of at most `rate`."""
    return _mixed(total, count, rate, FACTORS)


def against_at_least(total: float, count: int, rate: float) -> float:
    """The logarithm of what speaks against a mean of at least `rate`."""
    return _mixed(total, count, rate, [1.0 / factor for factor in FACTORS])


def upper(total: float, count: int, alpha: float) -> float:
    """A bound that the mean is below at all times, but with probability `alpha`."""
    return _bound(total, count, -log(alpha), [1.0 / factor for factor in _CLOSE])


def lower(total: float, count: int, alpha: float) -> float:
    """A bound that the mean is above at all times, but with probability `alpha`."""
    return _bound(total, count, -log(alpha), _CLOSE)


def _mixed(total: float, count: int, rate: float, factors: Sequence[float]) -> float:
    if rate >= 1.0 and factors[0] > 1.0:  # nothing is larger
        return -inf
    logs = [total * log(m) - count * log1p(rate * (m - 1.0)) for m in factors]
    most = max(logs)
    return most + log(sum(exp(each - most) for each in logs) / len(logs))


def _bound(total: float, count: int, wanted: float, factors: Sequence[float]) -> float:
    """The rate at which the evidence reaches the wanted level; it grows away from the mean."""
    near, far = (0.0, 1.0) if factors[0] < 1.0 else (1.0, 0.0)
    for _ in range(_STEPS):
        middle = (near + far) / 2
        if _mixed(total, count, middle, factors) >= wanted:
            far = middle
        else:
            near = middle
    return far
