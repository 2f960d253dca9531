"""Long work beside an event loop that answers requests in microseconds.

A thread that computes has the interpreter's lock for five milliseconds at a time, and so long a
request waits. And the collector of garbage, when it looks at everything, stops the process for a
time that grows with its models: 0.3 s with 3,000.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")

#: Long enough for another thread to wake up and take the lock.
_REST_SECONDS = 50e-6

#: How long a thread may have the lock while another wants it, in a process that is a server's own.
SWITCH_SECONDS = 500e-6

_lock = threading.Lock()
_pauses = 0


@contextmanager
def lock_shared() -> Iterator[None]:
    """Threads have the interpreter's lock for a tenth of the usual time meanwhile.

    It is one setting for the process, so it is for whoever owns that: a command, not a library.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, SWITCH_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def gently(items: Iterable[Item], every: int = 64) -> Iterator[Item]:
    """The same items, with a rest after every so many."""
    for place, item in enumerate(items, 1):
        yield item
        if not place % every:
            time.sleep(_REST_SECONDS)


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection meanwhile: what is made here in masses has no cycles, and goes at the end."""
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


#: Whether it is we who have stopped the collector.
_stopped = threading.Event()


def keep_what_is_here() -> None:
    """Collect now, and look at what is left never again: models were loaded, and stay.

    One that goes later is freed all the same: a plan is in no cycle.
    """
    gc.collect()
    gc.freeze()
