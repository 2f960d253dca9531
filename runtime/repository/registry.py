"""The interface by which a repository registers plans: a runtime, or several behind one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from runtime.rollout.owner import Owner
from runtime.routing.history import History, Routed
from runtime.service.endpoint import Endpoint


class Registry(Protocol):
    """The part of a runtime that a repository uses."""

    def register(
        self,
        name: str,
        source: Path,
        version: str,
        *,
        activate: bool = True,
        replace: bool = False,
        notes: Mapping[str, object] | None = None,
    ) -> object:
        """Serve the plan in a file."""

    def switch(self, name: str, version: str) -> object:
        """Let another version answer the endpoint's requests."""

    def unregister(self, name: str, version: str | None = None) -> object:
        """Unregister a version, or the endpoint with its route and all its versions."""


@runtime_checkable
class RoutedRegistry(Registry, Routed, Protocol):
    """A registry whose endpoints can have routes, that are read from files and written to them."""

    on_route: Callable[[str, History], object] | None
    """Called with a name and its history before a change counts; what it raises undoes it."""

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every endpoint with its versions."""

    def restore(self, name: str, read: Callable[[], History]) -> None:
        """Take over a history that was written down; nothing changes while it is read."""

    def mute(self, name: str, reason: str) -> None:
        """Answer nothing under a name whose route cannot be read."""

    def unmute(self, name: str) -> None:
        """Let the version in service answer again, as there is no route to be read."""


@runtime_checkable
class RolloutRegistry(RoutedRegistry, Owner, Protocol):
    """A registry whose endpoints can have rollouts, that go on when it starts again."""

    def resume_rollout(self, name: str, data: Mapping[str, Any]) -> object:
        """Go on with a rollout that was written down."""
