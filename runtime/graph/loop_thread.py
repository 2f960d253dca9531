"""An event loop for callers that have none, and what is under way on this and other loops."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from weakref import WeakKeyDictionary

from runtime.errors import RuntimeClosed
from runtime.graph.router import GraphRequest, GraphRouter


class LoopThread:
    """An event loop on a thread of its own, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process, self._closed = os.getpid(), False
        #: The requests that are under way on each loop, each with its router.
        self.requests: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[GraphRequest, GraphRouter]]
        self.requests = WeakKeyDictionary()

    def loop(self, *, apart: bool) -> asyncio.AbstractEventLoop:
        """The loop for a request: that of the calling thread, or the own one if it is `apart`."""
        here = None if apart else asyncio._get_running_loop()  # noqa: SLF001 (raises nothing)
        with self._lock:
            if self._closed:
                raise RuntimeClosed("this runtime was closed", hint="it takes no more calls")
            if self._process != os.getpid():  # a fork has no such thread, and none of its requests
                self._process, self._loop = os.getpid(), None
                self.requests.clear()
            if here is None and self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="pretzel-graphs", daemon=True
                )
                self._thread.start()
            loop = here or self._loop
            assert loop is not None, "it was started"
            self.requests.setdefault(loop, {})
            return loop

    def close(self, seconds: float) -> None:
        """End the loop; what waits elsewhere may end in so many seconds, and is then given up."""
        end, here = time.monotonic() + seconds, asyncio._get_running_loop()  # noqa: SLF001 (as above)
        while time.monotonic() < end and any(some for on, some in self._every() if on is not here):
            time.sleep(0.002)
        with self._lock:
            self._closed = True
        for loop, requests in self._every():
            with suppress(RuntimeError):  # it was closed: nothing waits there
                loop.call_soon_threadsafe(_give_up, requests)
                if loop is self._loop:
                    loop.call_soon_threadsafe(loop.stop)
        if self._thread is not None and self._loop is not here:
            self._thread.join(1.0)

    def _every(self) -> list[tuple[asyncio.AbstractEventLoop, dict[GraphRequest, GraphRouter]]]:
        """Requests under way, by loop; a fork has none of its parent's."""
        with self._lock:
            return [*self.requests.items()] if self._process == os.getpid() else []


def _give_up(requests: dict[GraphRequest, GraphRouter]) -> None:
    for request, router in [*requests.items()]:
        router.fail(request, RuntimeClosed("this runtime was closed", where=router.name))


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
