"""An event loop for callers that have none: requests that wait do so here."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable

from runtime.errors import RuntimeClosed
from runtime.graph.router import Request, Router


class LoopThread:
    """An event loop on a thread of its own, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0
        #: The requests that are under way here, each with its router.
        self.requests: dict[Request, Router] = {}

    def call(self, function: Callable[..., object]) -> None:
        """Call something on the loop's thread, soon."""
        with self._lock:
            if self._loop is None or self._process != os.getpid():  # a fork has no such thread
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="pretzel-graphs", daemon=True
                )
                self._thread.start()
            self._loop.call_soon_threadsafe(function)

    def is_here(self) -> bool:
        """Whether this thread is the loop's."""
        return threading.current_thread() is self._thread

    def close(self, seconds: float) -> None:
        """End the loop; what waits may end in so many seconds, and is then given up."""
        end = time.monotonic() + seconds
        while self.requests and time.monotonic() < end:
            time.sleep(0.002)
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(self._end, loop)
            thread.join(1.0)

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        for request, router in list(self.requests.items()):
            router.fail(request, RuntimeClosed("this runtime was closed", where=router.name))
        loop.stop()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped; then end its tasks."""
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
    finally:
        loop.close()
