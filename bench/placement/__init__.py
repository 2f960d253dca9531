"""Placement of models on the nodes of a network, decided online from the requests that are seen.

Network     nodes with budgets of bytes, and the way from each to the repository
Catalogue   models: their tasks, bytes, inference delays and accuracies, and what they share
Demand      requests a slot: fixed or sliding popularity, or an alternating adversary
Market      what each placement gains for requests, and the super-gradient of that
Mirror      the policy: mirror ascent, projection to the budgets, coupled randomised rounding
simulate    a policy over many slots

docs/contributing/placement.md explains them; the method is that of inference delivery networks
(INFIDA).
"""

from __future__ import annotations

from bench.placement.catalogue import Catalogue, shared, variants
from bench.placement.gain import Market
from bench.placement.mirror import DependentRounding, MirrorAscent, project
from bench.placement.network import CHAIN, TREE, Network
from bench.placement.simulator import (
    LRU,
    OLAG,
    Demand,
    OnlineGreedy,
    PlacementPolicy,
    Static,
    Trace,
    alternating,
    greedy,
    popular,
    simulate,
)

__all__ = [
    "CHAIN",
    "LRU",
    "OLAG",
    "TREE",
    "Catalogue",
    "Demand",
    "DependentRounding",
    "Market",
    "MirrorAscent",
    "Network",
    "OnlineGreedy",
    "PlacementPolicy",
    "Static",
    "Trace",
    "alternating",
    "greedy",
    "popular",
    "project",
    "shared",
    "simulate",
    "variants",
]
