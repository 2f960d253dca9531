"""Steps that take long enough to be handed to another thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

#: Steps that take less are done where they are: to wake a thread costs some 50 us.
SLOW_SECONDS = 200e-6


class Threads(Protocol):
    """The threads of a runtime."""

    def side_by_side(self, tasks: Sequence[Callable[[], object]]) -> None:
        """Do all tasks, here and on threads that have nothing to do; the first error is raised."""

    def elsewhere(self, task: Callable[[], Any], *, key: str) -> Future[Any]:
        """Run a version's task on another thread; Overloaded where none has room."""
