"""Single rows asked by two threads: against one thread, and against what Python itself loses.

A call that is shorter than taking the GIL back keeps it (see oven.run.native_run), so two threads
do what one does, less what the interpreter takes to hand it over. How much that is, a built-in
function that takes as long says, called in the same way in the same rounds: its share is the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from threading import Barrier, Thread
from typing import Any

import numpy as np

from bench.goal import Goal

Call = Callable[[], object]
ROUNDS, SECONDS = 30, 0.02
#: What two threads do, of what one does, in the share of the control.
EQUAL = 0.97


def two_threads(model: Any, table: Any) -> Iterator[Goal]:
    """The goals, for the ways in which one row is asked."""
    import flour
    import oven
    from runtime import Runtime

    plan = oven.bake(flour.from_sklearn(model), background=False)
    rows = np.ascontiguousarray(table)
    with Runtime(executors=1) as served:
        served.register("m", plan)
        ways: dict[str, Call] = {
            "the entry": partial(plan.entry(), rows[0]),
            "plan.run": partial(plan.run, rows[:1]),
            "Runtime.predict": partial(served.predict, "m", rows[0]),
        }
        for name, call in ways.items():
            thousand = _seconds(partial(sum, range(1000)), 1000, 1)
            count = int(1000 * _seconds(call, 1000, 1) / thousand)
            share, limit = _shares(call, partial(sum, [*repeat(1, max(count, 1))]))
            print(f"{name}: two threads do {share:.2f} of one, a built-in function {limit:.2f}")
            yield Goal(f"one row by {name}: two threads, of Python's limit", share / limit, EQUAL)


def _shares(*calls: Call) -> list[float]:
    """What two threads do in a second, of what one does: the median of rounds, in turns."""
    found: list[list[float]] = [[] for _ in calls]
    counts = [2 * int(SECONDS / _seconds(call, 1000, 1) / 2) for call in calls]
    for _ in range(ROUNDS):
        for call, count, shares in zip(calls, counts, found, strict=True):
            shares.append(_seconds(call, count, 1) / _seconds(call, count, 2))
    return [float(np.median(each)) for each in found]


def _seconds(call: Call, calls: int, callers: int) -> float:
    """Processor time of the process for a call, of so many that threads divide among themselves.

    Not the time on the clock: what else runs on the machine takes from one thread and from two
    unequally. While a call keeps the GIL, one thread runs at a time.
    """
    ready = Barrier(callers + 1)

    def work() -> None:
        ready.wait()
        for _ in repeat(None, calls // callers):
            call()

    threads = [Thread(target=work) for _ in range(callers)]
    for thread in threads:
        thread.start()
    start = time.process_time_ns()
    ready.wait()
    for thread in threads:
        thread.join()
    return (time.process_time_ns() - start) / calls / 1e9
