"""What versions hold of parameters: their own, and in common with others of this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from objectstore.accounting import report
from runtime.http.loop_fairness import gently
from runtime.service.version import ModelVersion


@dataclass(frozen=True, slots=True)
class Parameters:
    """Bytes: by owner its own and those shared, all of them once, and without sharing."""

    by_owner: Mapping[str, tuple[int, int]]
    unique: int
    copies: int


class Accountant:
    """Adds up what plans in memory hold; what a plan holds is looked up once."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[ModelVersion, dict[str, int]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __call__(self, versions: Mapping[str, ModelVersion]) -> Parameters:
        """Of these versions, those whose plans are in memory."""
        with self._lock:
            found = {owner: self._held(served) for owner, served in gently(versions.items())}
        held = {owner: each for owner, each in found.items() if each is not None}
        sizes = {digest: nbytes for each in held.values() for digest, nbytes in each.items()}
        holdings = {owner: frozenset(each) for owner, each in held.items()}
        said = report(holdings, (), sizes.__getitem__)
        by_owner = {each.owner: (each.own_bytes, each.shared_bytes) for each in said.owners}
        return Parameters(by_owner, said.unique_bytes, said.held_bytes)

    def _held(self, served: ModelVersion) -> dict[str, int] | None:
        """Bytes by digest; None while the plan is dropped."""
        plan = served.plan
        if plan is None:
            return None
        known = self._known.get(served)
        if known is None:
            known = {item.digest: item.nbytes for item in plan.resident()}
            self._known[served] = known
        return known
