"""Does the default do as well as the better engine, and do two threads do twice as much?

    python -m bench engines

A table by itself: no contestants and no report. Engines take turns, call by call, and the best of
several rounds counts. What two threads can do on this machine now is measured beside them, with
native code that shares nothing. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from bench.goal import Goal

QUESTION = "The default against the better engine, from one and two callers"
#: Rows of a block; 0 is a single row, by the plan's entry.
SIZES = (0, 100, 1000, 10_000, 100_000)
WIDTH = 20
#: A call that takes longer is not measured, nor is one of more rows.
LONGEST = 0.5
ENDPOINT = "model"
SLICE, ROUNDS, WARM = 0.1, 5, 64
Call = Callable[[int], object]


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    import flour
    import oven
    from runtime import Runtime

    for name, model, rows in _models():
        plan = oven.bake(flour.from_sklearn(model, sample=rows[:100]))
        with Runtime() as runtime:
            runtime.register(ENDPOINT, plan)
            for size in SIZES:
                taken = yield from _size(runtime, name, rows[0] if not size else rows[:size])
                if taken > LONGEST:
                    break


def _models() -> Iterator[tuple[str, Any, np.ndarray[Any, Any]]]:
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(max(SIZES), WIDTH))
    x = rows[:4000]
    y = x[:, 0] + x[:, 1] * x[:, 2] + rng.normal(size=len(x))
    yield "linear", LinearRegression().fit(x, y), rows
    yield "boosted trees", HistGradientBoostingRegressor(random_state=0).fit(x, y), rows
    yield "forest of 100", RandomForestRegressor(100, max_depth=8, random_state=0).fit(x, y), rows
    yield "600 deep trees", RandomForestRegressor(600, random_state=0).fit(x, y), rows


def _size(runtime: Any, name: str, data: np.ndarray[Any, Any]) -> Generator[Goal, None, float]:
    """The goals for one size of block; returns the seconds of a call."""
    single = data.ndim == 1
    copies = [data.copy() for _ in range(2)]

    def by(engine: str | None) -> Call:
        options = {} if engine is None else {"engine": engine}
        return lambda caller: runtime.predict(ENDPOINT, copies[caller], **options)

    ways = {"default": by(None)}
    if not single:
        ways |= {"inline": by("inline"), "batch": by("batch")}
    rates = _rates(ways)
    one = rates[("default" if single else "inline"), 1]
    taken, label = 1 / one, f"{name}, {'one row' if single else f'{len(data):,} rows'}"
    free = rates["free", 2] / rates["free", 1]
    if single:
        wanted = 1.8 if taken >= 20e-6 else 1.0
        yield Goal(f"{label}: two threads, of one", rates["default", 2] / one, wanted * free / 2)
        return taken
    for callers in (1, 2):
        best = max(rates["inline", callers], rates["batch", callers])
        share = rates["default", callers] / best
        yield Goal(f"{label}: {callers} callers, of the better engine", share, 0.95)
    if taken >= 1e-3:
        for callers, wanted in ((1, 1.8), (2, 1.9)):
            gain = rates["default", callers] / one
            yield Goal(f"{label}: {callers} callers, of one inline", gain, wanted * free / 2)
    return taken


def _rates(ways: dict[str, Call]) -> dict[tuple[str, int], float]:
    """Calls a second, the best of some rounds, by way and number of callers."""
    for call in ways.values():
        start = time.perf_counter()
        for _ in range(WARM):
            call(0)
            if time.perf_counter() - start > 10 * LONGEST:
                break
    found: dict[tuple[str, int], float] = {}
    for _ in range(ROUNDS):
        for name, call in {**ways, "free": _nothing_shared()}.items():
            for callers in (1, 2):
                rate = _rate(call, callers)
                found[name, callers] = max(rate, found.get((name, callers), 0.0))
    return found


def _rate(call: Call, callers: int) -> float:
    """Calls a second of so many threads."""
    barrier, rates = threading.Barrier(callers), [0.0] * callers

    def run(caller: int) -> None:
        barrier.wait()
        start = now = time.perf_counter()
        calls = 0
        while now - start < SLICE:
            call(caller)
            calls, now = calls + 1, time.perf_counter()
        rates[caller] = calls / (now - start)

    threads = [threading.Thread(target=run, args=(caller,)) for caller in range(callers)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(rates)


def _nothing_shared() -> Call:
    """Some 100 us of native code without the GIL: a digest of a thread's own bytes."""
    from hashlib import sha256

    blocks = [bytes(64 << 10) for _ in range(2)]
    return lambda caller: sha256(blocks[caller]).digest()
