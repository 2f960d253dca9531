"""The interface by which a repository registers plans: a runtime, or several behind one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from runtime.rollout.owner import Owner
from runtime.routing.history import Histories
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
class RoutedRegistry(Registry, Protocol):
    """A registry whose endpoints can have routes and rollouts, that are read from files."""

    @property
    def endpoints(self) -> Iterable[Endpoint]:
        """Every endpoint with its versions."""

    @property
    def routes(self) -> Histories:
        """The routes of these endpoints."""

    @property
    def experiments(self) -> Owner:
        """The rollouts of these endpoints."""
