"""Answers of entries to the bit, and checks of every entry: leaks, threads, changed data."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from flour.core.errors import FlourError

Entry = Callable[[Any], Any]


def answer(call: Entry, data: object) -> Any:
    """The answer of a call to the bit, or its complaint."""
    try:
        with np.errstate(all="ignore"):
            return [(type(part), getattr(part, "dtype", None), bits(part)) for part in call(data)]
    except (FlourError, UnicodeError, OverflowError) as problem:
        return (type(problem), str(problem))


def bits(part: object) -> object:
    """A key that tells values apart, NaN and signs of zeros included."""
    if isinstance(part, np.ndarray):
        return part.tolist() if part.dtype == object else (part.shape, part.tobytes())
    return np.float64(part).tobytes() if isinstance(part, float) else part


def leaks_nothing(call: Entry, held: Sequence[object], more: Iterable[object] = ()) -> None:
    """Asked for any of these again and again, it keeps none of them, nor `more`, of their parts."""
    watched = [item for item in (*held, *more) if not isinstance(item, bool | None)]

    def ask(times: int) -> None:
        for _ in range(times):
            for item in held:
                answer(call, item)
        gc.collect()

    ask(1)  # what is made once is made
    before = [sys.getrefcount(item) for item in watched]
    ask(50)
    assert [sys.getrefcount(item) for item in watched] == before


def threads_do_not_meet(call: Entry, blocks: Sequence[object]) -> None:
    """Many threads at once get the answers that one alone gets."""
    want = [answer(call, block) for block in blocks]

    def work(_: int) -> None:
        for block, known in zip(blocks, want, strict=True):
            assert answer(call, block) == known

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(16)))


class Spiteful:
    """Empties a list or a dict as soon as the collector looks at it."""

    def __init__(self, victim: Any) -> None:
        self.victim, self.me = victim, self

    def __del__(self) -> None:
        self.victim.clear()


def data_may_change(call: Entry, made: Callable[[int], tuple[object, object]]) -> None:
    """Making answers may run the collector, and that anybody's code, which changes the data.

    `made` gives the data of a turn, and the part of it that is emptied.
    """
    before = gc.get_threshold()
    try:
        for turn in range(300):
            data, victim = made(turn)
            Spiteful(victim)
            gc.set_threshold(1 + turn % 7)
            answer(call, data)
            gc.set_threshold(*before)
    finally:
        gc.set_threshold(*before)
        gc.collect()
