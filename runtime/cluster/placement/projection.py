"""The Bregman projection to a budget, for the entropy weighted by sizes."""

from __future__ import annotations

import numpy as np

from runtime.cluster.placement.network import Numbers


def project(wanted: Numbers, sizes: Numbers, budget: float) -> Numbers:
    """The point nearest to `wanted` with 0 <= y <= 1 and sizes · y equal to the budget.

    With the divergence of Σ s y ln y, the sizes cancel in the conditions of the optimum: it is
    min(1, c · wanted) for one c. The largest are tried as the ones that are cut off at 1. Where
    everything fits, the answer is 1 everywhere.
    """
    if sizes.sum() <= budget:
        return np.ones_like(wanted)
    order = np.argsort(-wanted, kind="stable")
    sorted_sizes, sorted_wanted = sizes[order], wanted[order]
    cut = np.concatenate(([0.0], np.cumsum(sorted_sizes)[:-1]))
    # From the back, so that small numbers are not what is left of a difference of large ones.
    rest = np.cumsum((sorted_sizes * sorted_wanted)[::-1])[::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = (budget - cut) / rest
    fits = factor * sorted_wanted <= 1
    first = int(np.argmax(fits)) if fits.any() else len(order) - 1
    result: Numbers = np.minimum(1.0, factor[first] * wanted)
    result[order[:first]] = 1.0
    return result
