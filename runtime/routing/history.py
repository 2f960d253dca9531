"""The history of an endpoint's routes: what was changed, when and by whom."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from runtime.routing.route import Route


class Change(NamedTuple):
    """One change of a route. `undone_to` is the number of the change that a rollback returns to."""

    number: int
    action: str
    route: Route
    who: str
    when: float
    undone_to: int | None


History = tuple[Change, ...]


class Routed(Protocol):
    """What has endpoints with routes."""

    def has_route(self, name: str) -> bool:
        """Whether an endpoint was given a route."""

    def history(self, name: str) -> History:
        """The changes of an endpoint's route."""

    def check_route(self, name: str, route: Route) -> None:
        """Raise unless an endpoint can follow this route."""


#: How many changes are kept; a rollback goes no further back. A change copies the history.
KEPT = 1000


def extended(history: History, action: str, route: Route, who: str, when: float) -> History:
    """The history with one more change."""
    before = history[-1].number if history else None
    return _with(history, Change(_next(history), action, route, who, when, before))


def rolled_back(history: History, who: str, when: float) -> History | None:
    """The history with the last standing change undone; None if no change before it is kept."""
    target = history[-1].undone_to
    if target is None or target < history[0].number:
        return None
    former = history[target - history[0].number]
    change = Change(_next(history), "rollback", former.route, who, when, former.undone_to)
    return _with(history, change)


def _next(history: History) -> int:
    return history[-1].number + 1 if history else 0


def _with(history: History, change: Change) -> History:
    return (*history[1 - KEPT :], change)
