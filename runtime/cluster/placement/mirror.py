"""The policy: each node raises the probability of what would have saved most for each byte.

Probabilities that exceed a node's budget are projected to it, by Bregman's divergence for the
entropy weighted by sizes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.cluster.placement.gain import Market
from runtime.cluster.placement.network import Numbers
from runtime.cluster.placement.rounding import Rounding

#: No probability falls below this over the slots (of the window), so that a model can come back.
_LEAST = 6e-2
#: What is less probable than this is not loaded to fill the last bytes of a budget.
_WORTH_FILLING = 0.1


class Mirror:
    """Online mirror ascent on the probabilities of models, with dependent rounding.

    The step is `rate` over the largest gradient so far and the root of the slots, of `window` at
    most: a window keeps up with popularity that slides. Placements are rounded every `refresh`
    slots, or where `drift` bytes of the budget (a part of 1) have moved since the last time.
    """

    def __init__(
        self,
        market: Market,
        generator: np.random.Generator,
        *,
        rate: float = 100.0,
        window: float = 150.0,
        refresh: int = 26,
        drift: float = 0.0,
        coupled: bool = True,
    ) -> None:
        self._market, self._catalogue = market, market.catalogue
        self._rate, self._window, self._refresh, self._drift = rate, window, refresh, drift
        self._coupled = coupled
        self._round = Rounding(*market.shape, generator)
        self._budgets = market.network.budgets
        self._slots, self._scale = 0, 0.0
        self.presence = self._projected(np.ones(market.shape))
        self._rounded = self.presence
        self._placement = self._whole()

    def placement(self) -> NDArray[np.bool_]:
        """Which models are on which node in this slot."""
        return self._placement

    def observe(self, requests: Numbers) -> None:
        """Learn from the requests of a slot."""
        self._slots += 1
        rise = self._market.gradient(self.presence, requests) / self._catalogue.shares(
            self.presence
        )
        self._scale = max(self._scale, float(rise.max(initial=0.0)))
        if self._scale > 0:
            step = self._rate / (self._scale * min(self._slots, self._window) ** 0.5)
            self.presence = self._projected(self.presence * np.exp(step * rise))
        if self._slots % self._refresh == 0 and self._moved() >= self._drift:
            self._rounded = self.presence
            self._placement = self._whole()

    def _moved(self) -> float:
        """The part of all budgets that other models have now than when they were rounded."""
        change = np.abs(self.presence - self._rounded) * self._catalogue.shares(self.presence)
        return float(change.sum() / self._budgets.sum())

    def _projected(self, wanted: Numbers) -> Numbers:
        sizes = self._catalogue.shares(np.minimum(wanted, 1.0))
        rows = zip(wanted, sizes, self._budgets, strict=True)
        least = _LEAST / min(self._slots + 1, self._window)
        return np.maximum(np.stack([project(*row) for row in rows]), least)

    def _whole(self) -> NDArray[np.bool_]:
        if not self._coupled:
            self._round.refresh()
        chosen = self._round(self.presence, self._catalogue.shares(self.presence))
        return np.stack(
            [self._fitted(*row) for row in zip(chosen, self.presence, self._budgets, strict=True)]
        )

    def _fitted(
        self, chosen: NDArray[np.bool_], presence: Numbers, budget: float
    ) -> NDArray[np.bool_]:
        """Without the least probable models that do not fit, with more where there is room."""
        chosen = chosen.copy()
        order = np.argsort(-presence, kind="stable")
        for model in order[::-1]:
            if self._catalogue.bytes_of(chosen) <= budget:
                break
            chosen[model] = False
        left = budget - self._catalogue.bytes_of(chosen)
        for model in order:
            if presence[model] <= _WORTH_FILLING:
                break
            size = self._catalogue.added(int(model), chosen)
            if not chosen[model] and size <= left:
                chosen[model] = True
                left -= size
        return chosen


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
