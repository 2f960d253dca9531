"""A future of what is there already: for calls that were over when they returned.

A `concurrent.futures.Future` makes a lock and a condition when it is made, which takes as long as
a small model does. This one is done when it is made and needs neither, so they are made when they
are asked for all the same: `wait` and `as_completed` do so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

#: Where futures write what their callbacks raise.
_log = logging.getLogger("concurrent.futures")
_LATE: dict[str, Callable[[], Any]] = {
    "_condition": threading.Condition,
    "_waiters": list,
    "_done_callbacks": list,
}


class DoneFuture(Future[Any]):
    """A future that is done, and was from the start; it behaves as any other that is."""

    _state = "FINISHED"
    _exception = None

    def __init__(self, result: object) -> None:  # the rest of a future is made when it is needed
        self._result = result

    def __getattr__(self, name: str) -> Any:
        """Make what futures have when it is first asked for.

        Two threads may each make one; no thread waits on it, so either may stay.
        """
        if name not in _LATE:
            raise AttributeError(name)
        attribute = vars(self)[name] = _LATE[name]()
        return attribute

    def done(self) -> bool:
        """It is."""
        return True

    def result(self, timeout: float | None = None) -> Any:
        """The answers."""
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """None, as there are answers."""
        return None

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call it now; as with any future, what it raises is logged."""
        try:
            fn(self)
        except Exception:  # noqa: BLE001 (whatever it is, it is not the call's)
            _log.exception("exception calling callback for %r", self)


def done(call: Callable[[], Any]) -> Future[Any]:
    """A future of what a call gives or raises, made here and now."""
    future: Future[Any] = Future()
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 (it is the future's)
        future.set_exception(error)
    return future
