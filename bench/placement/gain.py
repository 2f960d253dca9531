"""Gain of a placement for requests, over the defaults in the repository.

A request costs the round trip, the inference delay, and `inaccuracy` for each part of accuracy it
misses. The options of a request type are the models of its task on its path, the cheapest first,
as far as they are cheaper than the default. With `Z_k` the requests that the first k options can
take, the gain is Σ_k (cost_{k+1} - cost_k) · Z_k: concave where models are present in part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.placement.catalogue import Catalogue
from bench.placement.network import Network, Numbers

#: What the options after a type's last one point to: a place that never has a model.
_NOWHERE = -1


class _PlaceOption(NamedTuple):
    cost: float
    place: int


class Market:
    """The options of every request type, in arrays with one row a type."""

    def __init__(
        self,
        network: Network,
        catalogue: Catalogue,
        *,
        inaccuracy: float = 100.0,
        capacity: float = np.inf,
    ) -> None:
        self.network, self.catalogue, self.capacity = network, catalogue, capacity
        self.shape = (len(network.names), len(catalogue))
        penalty = catalogue.delays + inaccuracy * (1 - catalogue.accuracies)
        types = [(leaf, task) for leaf in network.leaves for task in range(len(catalogue.defaults))]
        self.default = np.array(
            [
                network.repository_delay(leaf) + penalty[catalogue.defaults[task]]
                for leaf, task in types
            ]
        )
        options = [
            self._options(leaf, np.flatnonzero(catalogue.tasks == task), penalty, limit)
            for (leaf, task), limit in zip(types, self.default, strict=True)
        ]
        width = max(1, *(len(each) for each in options))
        self.places = np.full((len(types), width), _NOWHERE)
        self.costs = np.repeat(self.default[:, None], width, axis=1)
        for row, each in enumerate(options):
            for column, option in enumerate(each):
                self.costs[row, column], self.places[row, column] = option
        self.real = self.places != _NOWHERE
        #: From each option to the next, the last to the default.
        self.steps = np.diff(self.costs, axis=1, append=self.default[:, None])

    def _options(
        self, leaf: int, models: NDArray[np.int64], penalty: Numbers, limit: float
    ) -> list[_PlaceOption]:
        count = len(self.catalogue)
        every = (
            _PlaceOption(trip + float(penalty[model]), node * count + int(model))
            for node, trip in self.network.path(leaf)
            for model in models
        )
        return sorted(option for option in every if option.cost < limit)

    def present(self, placement: NDArray[np.generic]) -> Numbers:
        """The share of each option in a placement."""
        found: Numbers = np.where(self.real, placement.ravel()[self.places], 0.0)
        return found

    def gain(self, placement: NDArray[np.generic], requests: Numbers) -> float:
        """The gain of a placement, whole or in part, for the requests of one slot."""
        able = np.minimum(self.capacity, requests)[:, None] * self.present(placement)
        return float((self.steps * np.minimum(requests[:, None], np.cumsum(able, axis=1))).sum())

    def gradient(self, placement: NDArray[np.generic], requests: Numbers) -> Numbers:
        """A super-gradient of the gain: what more of each model on each node would save.

        A type sends one number back along its path: the cost of the dearest option it used.
        """
        each = np.minimum(self.capacity, requests)[:, None]
        taken = np.cumsum(each * self.present(placement), axis=1)
        enough = taken >= requests[:, None] * (1 - 1e-12)
        last = np.where(enough.any(axis=1), enough.argmax(axis=1), -1)
        dearest = np.where(last < 0, self.default, self.costs[np.arange(len(last)), last])
        return self.by_place(each * np.maximum(dearest[:, None] - self.costs, 0.0))

    def by_place(self, values: Numbers) -> Numbers:
        """Sums of values of options for each node and model."""
        size = self.shape[0] * self.shape[1]
        sums = np.bincount(self.places[self.real], values[self.real], minlength=size)
        found: Numbers = np.asarray(sums, np.float64).reshape(self.shape)
        return found
