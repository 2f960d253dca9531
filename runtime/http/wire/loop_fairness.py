"""Keeps long tasks from delaying an event loop that answers in microseconds.

A thread that computes holds the GIL for five milliseconds at a time, and requests wait that long. A
full garbage collection stops the process for a time that grows with the number of models: 0.3 s
with 3,000.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")

#: Long enough for another thread to wake up and take the GIL.
_REST_SECONDS = 50e-6

#: The switch interval of the GIL in a server's own process.
SWITCH_SECONDS = 500e-6

#: Frames of a connection that are handled before others get their turn.
AT_ONCE = 16
#: Seconds of work on full reads of a connection after which others get their turn.
TURN_SECONDS = 0.001
#: Seconds of a round of the loop that those have together who go on.
_ROUND_SECONDS = 0.002
#: Seconds for which new connections of an address wait that has just been sent away.
WARY_SECONDS = 1.0

_lock = threading.Lock()
_pauses = 0


@contextmanager
def lock_shared() -> Iterator[None]:
    """Threads hold the GIL for a tenth of the usual time in this context.

    The setting is the whole process', so only a command may change it, not a library.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def gently(items: Iterable[Item], every: int = 64) -> Iterator[Item]:
    """Yield `items` with a short sleep after each `every` of them."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % every:
            time.sleep(_REST_SECONDS)


@contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection in this context, where many objects without cycles are made."""
    global _pauses  # noqa: PLW0603 (the collector is one for all threads)
    with _lock:
        _pauses += 1
        if _pauses == 1 and gc.isenabled():
            gc.disable()
            _stopped.set()
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if not _pauses and _stopped.is_set():
                _stopped.clear()
                gc.enable()


#: True if `uncollected` has disabled the collector.
_stopped = threading.Event()


def keep_what_is_here() -> None:
    """Collect garbage now, and exclude the remaining objects from later collections.

    Loaded models stay, so scanning them again is wasted. A plan that is dropped later is freed all
    the same, as it is in no cycle.
    """
    gc.collect()
    gc.freeze()


class ReadTurns:
    """Connections that have sent more than is handled at once, and wait for their turn.

    The system gives a connection half a megabyte of what it has sent before another is asked.
    """

    def __init__(self) -> None:
        self._line: deque[Callable[[], None]] = deque()
        self._called = False  # the next round is
        self._end = 0.0  # when those have had their time who are read in this round of the loop
        #: Addresses that have asked for too much in this second.
        self.wary: set[str] = set()

    def is_over(self, loop: asyncio.AbstractEventLoop, now: float) -> bool:
        """True if the connections that were read in this round of the loop have taken long."""
        if not self._end:
            self._end = now + _ROUND_SECONDS
            loop.call_soon(setattr, self, "_end", 0.0)
        return now > self._end

    def wait(self, loop: asyncio.AbstractEventLoop, go_on: Callable[[], None]) -> None:
        """Call `go_on` when those are through who waited before."""
        self._line.append(go_on)
        if not self._called:
            self._called = True
            loop.call_soon(self._round, loop)

    def _round(self, loop: asyncio.AbstractEventLoop) -> None:
        coming, end = len(self._line), time.perf_counter() + _ROUND_SECONDS
        try:
            while coming and time.perf_counter() < end:
                coming -= 1
                self._line.popleft()()
        finally:
            self._called = bool(self._line)
            if self._called:
                loop.call_soon(self._round, loop)
