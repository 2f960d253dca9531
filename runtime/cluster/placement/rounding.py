"""From probabilities to whole models: dependent rounding whose random numbers are kept.

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

from runtime.cluster.placement.network import Numbers

_WHOLE = 1e-9


class Rounding:
    """The random numbers of `nodes` trees over `models` leaves."""

    def __init__(self, nodes: int, models: int, generator: np.random.Generator) -> None:
        self._generator, self._nodes = generator, nodes
        self._width = 1 << max(0, models - 1).bit_length()
        self.refresh()

    def refresh(self) -> None:
        """Draw new random numbers: against requests that depend on what was placed before."""
        self._numbers = self._generator.random((self._nodes, self._width))

    def __call__(self, presence: Numbers, sizes: Numbers) -> NDArray[np.bool_]:
        """Whole models for probabilities, both with a row for each node."""
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
