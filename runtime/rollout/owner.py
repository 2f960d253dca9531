"""The interface by which a rollout sees and changes endpoints, of a runtime or of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from runtime.routing.comparison import Comparison, ComparisonCounts
from runtime.routing.history import Histories
from runtime.service.following import Claim, Judged, Report

Journal = Callable[[str, Mapping[str, Any]], object]


class Owner(Protocol):
    """Owner of endpoints and routes: the experiments of a runtime, or the supervisor of several."""

    @property
    def routes(self) -> Histories:
        """The routes, which the steps of a rollout change."""

    rollouts: dict[str, Judged]
    """The rollouts that there are, or were last, by endpoint."""
    on_rollout: Journal | None
    """Called with a name and what its rollout needs to go on, before that changes anything."""

    def champion(self, name: str) -> str:
        """The version in service; UnknownEndpoint if there is none."""

    def settle(self, seconds: float) -> None:
        """Wait until all processes have followed the changes so far; raise if one has not."""

    def put_rollout(self, name: str, rollout: Judged) -> None:
        """Have what this rollout wants counted in each process, or no more."""

    def reports(self, name: str) -> Iterable[Report]:
        """The counts of all processes."""

    def build(self, address: str) -> Mapping[str, str]:
        """Digests of what is registered under an address; empty where nothing is."""

    lost: Callable[[str], str]
    """Why the version of an address could not be loaded again; empty where it could."""

    def claims(self, name: str, request: str, names: list[str]) -> Iterable[Claim]:
        """Claims on a request, one from each process that remembers answering it."""

    def compare(self, name: str) -> ComparisonCounts | Comparison:
        """Differences of a shadow's answers from its champion's, over all processes."""
