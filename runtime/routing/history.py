"""The history of an endpoint's routes: what was changed, when and by whom."""

from __future__ import annotations

from typing import NamedTuple

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
