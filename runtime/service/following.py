"""The interfaces of what follows an answer: rollouts that count it, and keepers of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from runtime.routing.pairs import Answers
from runtime.service.version import ModelVersion

#: All that one process has counted: its name, a number that rises, and the counts as JSON.
Report = tuple[str, int, dict[str, dict[str, list[float]]]]
#: The version that answered a request, and the names of values that were not told of it before.
Claim = tuple[str, list[str]]


class Noting(Protocol):
    """A counter of an endpoint's requests in this process; see runtime.rollout."""

    id: str
    """Of the rollout that it counts for."""
    counts_on: bool
    """True if requests are still to be noted."""

    def note(
        self, owner: str, seconds: float, error: object, headers: Mapping[str, str] | None
    ) -> None:
        """Count a request that a version answered, or failed with an error."""

    def report(self) -> Report:
        """All that was counted so far."""

    def claim(self, request: str, names: Iterable[str]) -> Claim | None:
        """The version that answered a request with reported values; None if not known here."""

    def end(self) -> None:
        """Count no more: the rollout is over, or the endpoint is gone."""


class Judged(Protocol):
    """A rollout, as those know it who have its counts taken; see runtime.rollout."""

    @property
    def counted(self) -> dict[str, Any]:
        """The counts of each process, as JSON; empty after the end."""

    def tally(self, counted: Mapping[str, Any], agreed: Callable[[], tuple[int, int]]) -> Noting:
        """Make what counts in a process; `agreed` gives how many values of a shadow agreed."""

    def take(self, reporter: str, number: int, counts: Mapping[str, Any]) -> None:
        """Take over what a process has counted."""

    def end(self) -> None:
        """Judge no more: the endpoint is gone, or the runtime is closed."""


def is_late(rollout: Judged, known: Judged | None, *, is_there: bool) -> bool:
    """True if a rollout ends after its endpoint has gone, or after another has taken its place."""
    return not rollout.counted and (not is_there or known not in {None, rollout})


class Keeper(Protocol):
    """A store of endpoints' answers; see runtime.provenance."""

    def note(
        self,
        version: ModelVersion,
        rows: object,
        outputs: object,
        answers: Answers,
        headers: Mapping[str, str],
        answer: str | None = None,
    ) -> Answers:
        """Keep an answer, under a new id if none is given; the answer with its id."""

    def new_id(self) -> str:
        """An id that no other answer has."""

    def why(self, answer: str) -> object | None:
        """The facts about an answer; None if it was not kept here."""

    def end(self) -> None:
        """Write what has come, as the runtime is closed."""
