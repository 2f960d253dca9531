"""Bytes of parameters by version: own ones, and those shared with other versions."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from objectstore.accounting import report
from runtime.http.wire.loop_fairness import gently
from runtime.service.version import ModelVersion


@dataclass(frozen=True, slots=True)
class Parameters:
    """Bytes: own and shared ones by owner, all without duplicates, and all with duplicates."""

    by_owner: Mapping[str, tuple[int, int]]
    unique: int
    copies: int


class Accountant:
    """Adds up the parameters of plans in memory; those of a plan are looked up once."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[ModelVersion, dict[str, int]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __call__(self, versions: Mapping[str, ModelVersion]) -> Parameters:
        """The bytes of these versions, as far as their plans are in memory."""
        with self._lock:
            by_version = {
                owner: self._sizes_of(served) for owner, served in gently(versions.items())
            }
        held = {owner: each for owner, each in by_version.items() if each is not None}
        sizes = {digest: nbytes for each in held.values() for digest, nbytes in each.items()}
        holdings = {owner: frozenset(each) for owner, each in held.items()}
        totals = report(holdings, (), sizes.__getitem__)
        by_owner = {each.owner: (each.own_bytes, each.shared_bytes) for each in totals.owners}
        return Parameters(by_owner, totals.unique_bytes, totals.held_bytes)

    def _sizes_of(self, served: ModelVersion) -> dict[str, int] | None:
        """Bytes by digest; None while the plan is dropped."""
        plan = served.plan
        if plan is None:
            return None
        sizes = self._known.get(served)
        if sizes is None:
            sizes = {item.digest: item.nbytes for item in plan.resident()}
            self._known[served] = sizes
        return sizes
