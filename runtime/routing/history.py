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


def extended(history: History, action: str, route: Route, who: str, when: float) -> History:
    """The history with one more change."""
    before = history[-1].number if history else None
    return (*history, Change(len(history), action, route, who, when, before))


def rolled_back(history: History, who: str, when: float) -> History | None:
    """The history with the change that undoes the last one still standing; None without one."""
    target = history[-1].undone_to
    if target is None:
        return None
    former = history[target]
    change = Change(len(history), "rollback", former.route, who, when, former.undone_to)
    return (*history, change)
