"""Blocks of rows one after the other, some of them on their way at any time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from flour.core.errors import is_count
from runtime.errors import BadCall
from scheduler import Overloaded

Submit = Callable[[Any], Future[Any]]


def answers(submit: Submit, blocks: Iterable[Any], ahead: int) -> Iterator[Any]:
    """The answer for each block, in their order; no more than `ahead` blocks are held.

    Where the queue has no room, the next block waits for the first of ours. A caller that stops
    early leaves no call behind.
    """
    if not is_count(ahead, 1):
        raise BadCall("ahead is a number of blocks", found=repr(ahead)[:60])
    waiting: deque[Future[Any]] = deque()
    try:
        for block in blocks:
            while len(waiting) >= ahead:
                yield waiting.popleft().result()
            while (ticket := _accepted(submit, block, patient=bool(waiting))) is None:
                yield waiting.popleft().result()
            waiting.append(ticket)
        while waiting:
            yield waiting.popleft().result()
    finally:
        for ticket in waiting:
            ticket.cancel()


def _accepted(submit: Submit, block: object, *, patient: bool) -> Future[Any] | None:
    try:
        return submit(block)
    except Overloaded:
        if not patient:  # others have filled the queue
            raise
        return None
