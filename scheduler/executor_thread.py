"""The threads of pools, and which thread is one of them."""

from __future__ import annotations

import threading


class ExecutorThread(threading.Thread):
    """A thread that belongs to a pool. A daemon, so that a stage cannot keep a process alive."""


def is_executor() -> bool:
    """Whether the calling thread is an executor, of any pool: it waits for no other's work."""
    return isinstance(threading.current_thread(), ExecutorThread)
