"""The policy: each node raises the probability of what would have saved most for each byte.

Probabilities that exceed a node's budget are projected to it, by Bregman's divergence for the
entropy weighted by sizes.

From probabilities to whole models: dependent rounding whose random numbers are kept.
Models are pairs in a tree. Of two that are present in part, bytes move from one to the other until
one is there or not there, in a random direction that keeps both expectations; what is left of the
other goes up the tree. So the bytes of a node stay as they are, up to the one model that is left.

The random number of each pair is drawn once. Between slots probabilities change little, so most
pairs decide as they did before and few models are reloaded; with new numbers each time, the same
probabilities would reload a third of all models in every slot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.placement.gain import Market
from bench.placement.network import Numbers

_WHOLE = 1e-9


class DependentRounding:
    """The random numbers of `nodes` trees over `models` leaves."""

    def __init__(self, nodes: int, models: int, generator: np.random.Generator) -> None:
        self._generator, self._nodes = generator, nodes
        self._width = 1 << max(0, models - 1).bit_length()
        self.refresh()

    def refresh(self) -> None:
        """Draw new random numbers: against requests that depend on what was placed before."""
        self._numbers = self._generator.random((self._nodes, self._width))

    def __call__(self, presence: Numbers, sizes: Numbers) -> NDArray[np.bool_]:
        """Round probabilities to whole models, both with a row for each node."""
        models = presence.shape[1]
        spare = ((0, 0), (0, self._width - models))
        y, s = np.pad(presence, spare), np.pad(sizes, spare, constant_values=1.0)
        rows = np.arange(self._nodes)[:, None]
        carried = np.broadcast_to(np.arange(self._width), y.shape)
        used = 0
        while carried.shape[1] > 1:
            left, right = carried[:, ::2], carried[:, 1::2]
            chance = self._numbers[:, used : used + left.shape[1]]
            used += left.shape[1]
            # Two presences after bytes have moved between them; whole ones stay.
            a = y[rows, left]
            b = y[rows, right]
            size_a = s[rows, left]
            size_b = s[rows, right]
            both = _partial(a) & _partial(b)
            to_a = np.minimum(size_a * (1 - a), size_b * b)
            to_b = np.minimum(size_a * a, size_b * (1 - b))
            with np.errstate(divide="ignore", invalid="ignore"):
                moved = np.where(chance < to_b / (to_a + to_b), to_a, -to_b)
            moved = np.where(both, moved, 0.0)
            first, second = a + moved / size_a, b - moved / size_b
            y[rows, left], y[rows, right] = first, second
            carried = np.where(_partial(first), left, right)
        last = carried[:, 0]
        every = np.arange(self._nodes)
        y[every, last] = self._numbers[:, -1] < y[every, last]
        return y[:, :models] > 0.5


def _partial(y: Numbers) -> NDArray[np.bool_]:
    return (y > _WHOLE) & (y < 1 - _WHOLE)


#: No probability falls below this over the slots (of the window), so that a model can come back.
_LEAST = 6e-2
#: What is less probable than this is not loaded to fill the last bytes of a budget.
_WORTH_FILLING = 0.1


class MirrorAscent:
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
        self._round = DependentRounding(*market.shape, generator)
        self._budgets = market.network.budgets
        self._slots, self._scale = 0, 0.0
        self.presence = self._projected(np.ones(market.shape))
        self._rounded = self.presence
        self._placement = self._whole()

    def placement(self) -> NDArray[np.bool_]:
        """Models on each node in this slot."""
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
