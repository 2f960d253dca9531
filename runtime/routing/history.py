"""The history of an endpoint's routes: what was changed, when and by whom."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import NamedTuple

from flour.core.errors import nearest
from runtime.errors import BadCall, UnknownEndpoint
from runtime.routing.route import Route, promoted


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


class Histories:
    """The routes of endpoints with their histories: of a runtime, or of all workers together.

    Changes take turns, and each is checked and written down before it counts.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._histories: dict[str, History] = {}
        self._clock, self._changing = clock, Lock()
        #: Called with a name and its history before a change counts; what it raises undoes it.
        self.on_route: Callable[[str, History], object] | None = None

    def has_route(self, name: str) -> bool:
        """True if an endpoint was given a route, if only a champion."""
        return name in self._histories

    def change(self, name: str) -> int | None:
        """The number of the change of a route that is in force; None without a route."""
        history = self._histories.get(name)
        return None if history is None else history[-1].number

    def history(self, name: str) -> History:
        """The last thousand changes of an endpoint's route, the oldest first."""
        history = self._histories.get(name)
        if history is None:
            self.check_there(name)
            hint = "its newest version answers; a route whose champion is another one takes it back"
            raise UnknownEndpoint(
                f"{name!r} has no route", hint=nearest(name, list(self._histories)) or hint
            )
        return history

    def put_route(self, name: str, route: Route, *, action: str = "route", who: str = "") -> None:
        """Give an endpoint this route; `action` is what its history says of the change."""
        with self._changing:
            known = self._histories.get(name, ())
            self._put(name, extended(known, action, route, who, self._clock()))

    def promote(self, name: str, version: str | int | None = None, *, who: str = "") -> Route:
        """Let a challenger answer as the champion; see Runtime.promote."""
        with self._changing:
            history = self.history(name)
            made = promoted(name, history[-1].route, version)
            self._put(name, extended(history, "promote", made, who, self._clock()))
        return made

    def rollback(self, name: str, *, who: str = "") -> Route:
        """Return to the route before the last change; after a rollout, that is its last step."""
        with self._changing:
            history = rolled_back(self.history(name), who, self._clock())
            if history is None:
                raise BadCall("there is no earlier route to return to", where=name)
            self._put(name, history)
        return history[-1].route

    def restore(self, name: str, read: Callable[[], History]) -> None:
        """Take over a history that was written down; nothing changes while it is read."""
        with self._changing:
            self._put(name, read(), is_written=True)

    def _put(self, name: str, history: History, *, is_written: bool = False) -> None:
        """Put a history in force; the last step is the one assignment that requests see."""
        self._check_versions(name, history[-1].route)
        if self.on_route is not None and not is_written:
            self.on_route(name, history)
        self._apply(name, history)

    # --- of the owner of the endpoints -------------------------------------------------------

    def check_there(self, name: str) -> None:
        """Raise UnknownEndpoint unless there is an endpoint of this name."""
        raise NotImplementedError

    def check_route(self, name: str, route: Route) -> None:
        """Raise unless the versions of a route are there, and its conditions can be read."""
        raise NotImplementedError

    def _check_versions(self, name: str, route: Route) -> None:
        """Raise unless a route can be put in force, as far as that is known here."""
        raise NotImplementedError

    def _apply(self, name: str, history: History) -> None:
        """Let requests be answered by the last route of a history."""
        raise NotImplementedError

    def mute(self, name: str, reason: str) -> None:
        """Answer nothing under a name whose route cannot be read; versions answer by address."""
        raise NotImplementedError

    def unmute(self, name: str) -> None:
        """Let the version in service answer again, as there is no route to be read."""
        raise NotImplementedError
