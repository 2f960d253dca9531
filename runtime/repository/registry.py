"""Where a repository registers its plans: a runtime, or something that stands for several."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class Registry(Protocol):
    """As much of a runtime as a repository uses, with the meaning it has there."""

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
        """Take out a version."""
        ...
