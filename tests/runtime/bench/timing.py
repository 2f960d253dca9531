"""Times of functions that take turns: on a shared machine only ratios within one run say much."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np


def least(
    functions: Mapping[str, Callable[[], object]], turns: int, calls: int
) -> dict[str, float]:
    """Seconds a call takes in the best of some turns, for each function."""
    found = dict.fromkeys(functions, float("inf"))
    for _ in range(turns):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(calls):
                function()
            found[name] = min(found[name], (time.perf_counter() - start) / calls)
    return found


def each(function: Callable[[], object], calls: int) -> list[float]:
    """Seconds that each of some calls takes."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return times


def p99(times: list[float]) -> float:
    """The time that one in a hundred exceeds: the median over ten stretches of the run."""
    stretches = np.array_split(np.array(times), 10)
    return float(np.median([np.percentile(part, 99) for part in stretches]))
