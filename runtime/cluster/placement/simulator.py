"""A policy over many slots: what it gained, and how many models it loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from runtime.cluster.placement.gain import Market
from runtime.cluster.placement.network import Numbers
from runtime.cluster.placement.requests import Demand


class Policy(Protocol):
    """What decides where models are, before it sees the requests of a slot."""

    def placement(self) -> NDArray[np.bool_]:
        """Which models are on which node in this slot."""

    def observe(self, requests: Numbers) -> None:
        """Learn from the requests of a slot."""


@dataclass(frozen=True)
class Trace:
    """The gain and the models that were loaded in every slot."""

    gains: Numbers
    loads: Numbers

    @property
    def gain(self) -> float:
        """The mean gain of a slot."""
        return float(self.gains.mean())

    @property
    def loads_a_slot(self) -> float:
        """Loads after the first slot, which fills empty nodes."""
        return float(self.loads[1:].mean()) if len(self.loads) > 1 else 0.0


def simulate(policy: Policy, market: Market, demand: Demand) -> Trace:
    """Let a policy place models for requests, slot by slot."""
    gains, loads = np.zeros(len(demand)), np.zeros(len(demand))
    before = np.zeros(market.shape, bool)
    for slot, requests in enumerate(demand):
        now = policy.placement()
        gains[slot] = market.gain(now, requests)
        loads[slot] = np.count_nonzero(now & ~before)
        before = now
        policy.observe(requests)
    return Trace(gains, loads)
