"""The threads of executors, which a thread can be asked whether it is one of."""

from __future__ import annotations

import threading


class ExecutorThread(threading.Thread):
    """A thread that belongs to a pool. A daemon, so that a stage cannot keep a process alive."""


def is_executor() -> bool:
    """True if the calling thread is an executor, of any pool: it waits for no other's work."""
    return isinstance(threading.current_thread(), ExecutorThread)
