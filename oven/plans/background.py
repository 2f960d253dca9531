"""Compile later: a plan answers from its definition until its native code is there."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_shared: list[ThreadPoolExecutor] = []


def shared() -> Executor:
    """The one thread of this process that compiles in the background."""
    with _lock:
        if not _shared:
            _shared.append(ThreadPoolExecutor(1, thread_name_prefix="pretzel-compile"))
        return _shared[0]


def _after_fork() -> None:
    """A child process has not got the thread, and makes another one when it needs it."""
    _shared.clear()
    if _lock.locked():  # by a thread that this process does not have after a fork
        _lock.release()


os.register_at_fork(after_in_child=_after_fork)


#: Whether code that is in no cache is compiled on another thread unless a caller says otherwise.
BY_DEFAULT = [True]


class Pending(Generic[T]):
    """Something that is made now, or on another thread while others go without it."""

    def __init__(
        self,
        make: Callable[[], T],
        background: bool | Executor | None,  # noqa: FBT001 (`oven.bake` has it by name)
        at_hand: Callable[[], bool] = lambda: False,
    ) -> None:
        """Call `make`: here, on another thread, or there if its result is not `at_hand`."""
        self._made: T | None = None
        self._future: Future[T] | None = None
        if background is None:
            background = BY_DEFAULT[0] and not at_hand()
        if background is False:
            self._made = make()
        else:
            where = shared() if background is True else background
            self._future = where.submit(make)

    @property
    def here(self) -> T | None:
        """What was made, or None while it is not there; an error in making it is raised here."""
        if self._made is None:
            # The local: another thread may be here too, and lets the future go.
            future = self._future
            if future is not None and future.done():
                self._keep(future.result())
        return self._made

    def wait(self, timeout: float | None = None) -> T:
        """What was made, as soon as it is there; TimeoutError when that takes too long."""
        future = self._future
        if self._made is None and future is not None:
            self._keep(future.result(timeout))
        assert self._made is not None, "made, or still being made"
        return self._made

    def _keep(self, made: T) -> None:
        self._made = made
        self._future = None
