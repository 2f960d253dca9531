"""The interface by which a repository registers plans: a runtime, or several behind one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


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
        ...

    def switch(self, name: str, version: str) -> object:
        """Let another version answer the endpoint's requests."""
        ...

    def unregister(self, name: str, version: str) -> object:
        """Unregister a version."""
        ...
