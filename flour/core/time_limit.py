"""asyncio's time limits and groups of tasks as Python 3.11 has them, for Python 3.10 as well."""

from __future__ import annotations

import asyncio
import builtins
import sys
from collections.abc import Coroutine, Iterable
from typing import Any

#: Several errors at a time; Python 3.10 has no such class.
GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())

if sys.version_info >= (3, 11):
    from asyncio import timeout as time_limit

    def is_cancelled(task: asyncio.Task[Any] | None) -> bool:
        """True if others have asked for the task's end, or there is no task."""
        return task is None or task.cancelling() > 0

else:

    class time_limit:  # noqa: N801 (a function in later versions)
        """A block that is cancelled after `delay` seconds, and raises TimeoutError then."""

        def __init__(self, delay: float | None) -> None:
            self._delay, self._expired = delay, False
            self._timer: asyncio.TimerHandle | None = None

        async def __aenter__(self) -> time_limit:
            if self._delay is not None:
                loop, task = asyncio.get_running_loop(), asyncio.current_task()
                self._timer = loop.call_later(self._delay, self._end, task)
            return self

        def _end(self, task: asyncio.Task[Any]) -> None:
            self._expired = task.cancel()

        async def __aexit__(self, _: object, problem: BaseException | None, __: object) -> None:
            if self._timer is not None:
                self._timer.cancel()
            if self._expired and isinstance(problem, asyncio.CancelledError):
                raise TimeoutError from problem

        def expired(self) -> bool:
            """True once the time has passed."""
            return self._expired

    def is_cancelled(_: asyncio.Task[Any] | None) -> bool:
        """True: Python 3.10 does not tell whether a coroutine has cancelled itself."""
        return True


async def all_of(asked: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The answers of all of them; once one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in asked]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise


__all__ = ["GROUP", "all_of", "is_cancelled", "time_limit"]
