"""The models there are, and the bytes that a set of them takes on one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runtime.cluster.hashing import holders_of

Numbers = NDArray[np.float64]
Chosen = NDArray[np.bool_]


@dataclass(frozen=True)
class Catalogue:
    """Models in parallel arrays; `defaults` has for each task the model of the repository.

    `sizes` are a model's own bytes. `parts[p]` are the bytes of the shared parameter p, once for
    each node that has it; `holds[m, p]` tells which models need it.
    """

    tasks: NDArray[np.int64]
    sizes: Numbers
    delays: Numbers
    accuracies: Numbers
    defaults: NDArray[np.int64]
    parts: Numbers = field(default_factory=lambda: np.zeros(0))
    holds: Numbers | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def alone(self) -> Numbers:
        """The bytes of each model where it shares with no other."""
        return self.sizes if self.holds is None else self.sizes + self.holds @ self.parts

    def bytes_of(self, chosen: Chosen) -> float:
        """The bytes of a set of models on one node, each shared parameter once."""
        own = float(self.sizes[chosen].sum())
        if self.holds is None:
            return own
        return own + float(self.parts[self.holds[chosen].any(axis=0)].sum())

    def added(self, model: int, chosen: Chosen) -> float:
        """The bytes that one more model takes beside the chosen ones."""
        own = float(self.sizes[model])
        if self.holds is None:
            return own
        missing = (self.holds[model] > 0) & ~self.holds[chosen].any(axis=0)
        return own + float(self.parts[missing].sum())

    def shares(self, presence: Numbers) -> Numbers:
        """The size of every model with the shared bytes divided among the models that are there.

        `presence` has probabilities, a row for each node, and so has the answer.
        """
        if self.holds is None:
            return np.broadcast_to(self.sizes, presence.shape)
        return self.sizes + (self.parts / np.maximum(presence @ self.holds, 1.0)) @ self.holds.T

    def ignoring_sharing(self) -> Catalogue:
        """These models, as if each had copies of its own."""
        return Catalogue(self.tasks, self.alone, self.delays, self.accuracies, self.defaults)


def variants(tasks: int, generator: np.random.Generator, ladder: Sequence[float]) -> Catalogue:
    """Models from small and fast to large and accurate for each task; the default is the smallest.

    `ladder` has the sizes of one task's models; those of a task differ from it by a fifth at most.
    """
    steps = len(ladder)
    task = np.repeat(np.arange(tasks), steps)
    size = np.tile(np.array(ladder, float), tasks) * generator.uniform(0.8, 1.2, tasks * steps)
    rank = np.tile(np.arange(steps) / max(1, steps - 1), tasks)
    return Catalogue(task, size, 2 + 18 * rank, 0.5 + 0.4 * np.sqrt(rank), np.arange(tasks) * steps)


def shared(resident: Mapping[str, Mapping[str, int]]) -> Catalogue:
    """Models by the digests and bytes of their parameters: one task each, a default elsewhere.

    Digests of one model only count as its own bytes.
    """
    holders, bytes_of = holders_of(resident)
    common = [digest for digest, models in holders.items() if len(models) > 1]
    count = len(resident)
    holds = np.zeros((count, len(common)))
    for column, digest in enumerate(common):
        holds[holders[digest], column] = 1
    sizes = np.zeros(count)
    for digest, models in holders.items():
        if len(models) == 1:
            sizes[models[0]] += bytes_of[digest]
    order = np.arange(count)
    parts = np.array([float(bytes_of[digest]) for digest in common])
    return Catalogue(order, sizes, np.ones(count), np.ones(count), order, parts, holds)
