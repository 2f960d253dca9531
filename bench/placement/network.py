"""Nodes with budgets, and the way of a request from where it arrives to the repository."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.errors import ClusterError

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Network:
    """A tree of nodes: the last one is the root, whose repository always has a default model.

    `parents` has the index of each node's parent, -1 for the root; `delays` the round trip to it in
    milliseconds, and for the root the round trip to its repository.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    delays: tuple[float, ...]
    budgets: Numbers

    def __post_init__(self) -> None:
        size = len(self.names)
        lengths = {len(self.parents), len(self.delays), len(self.budgets)}
        above = all(parent > node for node, parent in enumerate(self.parents[:-1]))
        if lengths != {size} or not above or self.parents[-1] != -1:
            raise ClusterError(
                "a network lists each node before its parent, the root last",
                where=", ".join(self.names[:3]),
                found=f"parents {self.parents}, {len(self.delays)} delays",
                hint="Network(('edge', 'cloud'), (1, -1), (6.0, 0.0), np.array([10.0, 100.0]))",
            )

    @property
    def leaves(self) -> list[int]:
        """The nodes where requests arrive."""
        return [node for node in range(len(self.names)) if node not in self.parents]

    def path(self, leaf: int) -> list[tuple[int, float]]:
        """The nodes from a leaf to the root, each with the round trip to it."""
        found, node, delay = [], leaf, 0.0
        while node >= 0:
            found.append((node, delay))
            delay += self.delays[node]
            node = self.parents[node]
        return found

    def repository_delay(self, leaf: int) -> float:
        """The round trip from a leaf to the repository."""
        node, delay = self.path(leaf)[-1]
        return delay + self.delays[node]


def tiers(counts: tuple[int, ...], trips: tuple[float, ...], budgets: tuple[float, ...]) -> Network:
    """A tree in tiers, each node of a tier with equally many below it."""
    names = [f"tier{tier}-{n}" for tier, count in enumerate(counts) for n in range(count)]
    starts = np.cumsum([0, *counts])
    parents = [
        int(starts[tier + 1] + n * counts[tier + 1] // count) if tier + 1 < len(counts) else -1
        for tier, count in enumerate(counts)
        for n in range(count)
    ]
    return Network(
        tuple(names),
        tuple(parents),
        tuple(np.repeat(trips, counts).tolist()),
        np.repeat(np.array(budgets), counts),
    )


#: Topology I: 24 base stations, central offices, a regional data centre, the cloud.
TREE = tiers((24, 4, 1, 1), (6.0, 6.0, 15.0, 0.0), (1000.0, 2000.0, 4000.0, 8000.0))
#: Topology II: a chain of five nodes.
CHAIN = tiers(
    (1, 1, 1, 1, 1), (6.0, 6.0, 15.0, 40.0, 0.0), (1000.0, 1300.0, 2000.0, 3000.0, 4000.0)
)
