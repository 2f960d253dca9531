"""The future of a request to a graph that waits."""

from __future__ import annotations

import asyncio

from runtime.graph.threads import Threads
from scheduler import Awaited


class Answer(Awaited):
    """Comes by way of an event loop, and of executors: none of their threads waits for it."""

    def __init__(self, threads: Threads, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._threads, self._loop = threads, loop

    def waits_for(self) -> str:
        """The loop or the executors, if this thread is theirs."""
        if running_loop() is self._loop:
            return "the event loop that a graph waits on"
        return "an executor of this runtime" if self._threads.is_here() else ""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs on this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
