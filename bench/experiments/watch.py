"""What does watching cost, and does it find what was changed?

    python -m bench watch

Costs are processor time of the thread, the least of many repetitions, on blocks of 100,000 rows.
Faults are injected into one column of a table at a time, and windows are drawn from other contexts.
The goals of attribution and provenance come with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.experiments import attribution, provenance, watch_causes
from bench.experiments.bulk import census
from bench.goal import Goal

QUESTION = "watching: what drift, segments and taps cost, and whether faults are found"
_ROWS, _ROUNDS = 100_000, 15


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    rng = np.random.default_rng(0)
    yield from _drift(rng)
    yield from _segments(rng)
    yield from _endpoint()
    yield from watch_causes.measured()
    yield from attribution.measured()
    yield from provenance.measured()


def _nanoseconds(call: Callable[[], object], rounds: int = _ROUNDS) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.thread_time_ns()
        call()
        best = min(best, time.thread_time_ns() - start)
    return best


def _drift(rng: np.random.Generator) -> Iterator[Goal]:
    from runtime.watch import NumbersSketch, WordsSketch

    values = rng.normal(size=_ROWS)
    numbers = NumbersSketch.of(values)
    cost = _nanoseconds(lambda: numbers.counted(values)) / _ROWS
    yield Goal("drift: ns a row of a column of numbers", cost, 20, at_most=True)
    texts = np.array([f"word {n}" for n in range(42)], object)[rng.integers(0, 42, _ROWS)]
    words = WordsSketch.of(texts)
    cost = _nanoseconds(lambda: words.counted(texts)) / _ROWS
    yield Goal("drift: ns a row of a column of words", cost, 20, at_most=True)


def _segments(rng: np.random.Generator) -> Iterator[Goal]:
    from runtime.watch import Segments

    texts = np.array([f"country {n}" for n in range(100)], object)[rng.integers(0, 100, _ROWS)]
    table: dict[str, Any] = {"country": texts, "age": rng.uniform(0, 100, _ROWS)}
    scores, labels = rng.uniform(size=_ROWS), rng.integers(0, 2, _ROWS)
    segments = Segments(("country", "age // 10"), ("country", "age"))
    cost = _nanoseconds(lambda: segments.add(table, scores, labels)) / _ROWS
    yield Goal("segments: ns a row, 1,000 cells, scores and labels", cost, 25, at_most=True)


def _endpoint() -> Iterator[Goal]:
    from runtime import Runtime
    from runtime.watch import Tap, Watch

    model = census()
    rows = {name: model.rows[name].to_numpy() for name in model.rows.column_names}
    step = next(
        origin.step
        for places in model.plan.flow.origins().values()
        for origin in places
        if "simpleimputer" in origin.step
    )
    with Runtime() as runtime:
        runtime.register("census", model.plan)
        runtime.register("tapped", model.plan)
        runtime.wait(300)
        with Tap(runtime, "tapped", step, sample=0.01) as seen:

            def block(name: str) -> float:
                start = time.process_time_ns()
                runtime.predict(name, rows, engine="inline")
                seen.flush()
                return float(time.process_time_ns() - start)

            pairs = [(block("census"), block("tapped")) for _ in range(3 * _ROUNDS)]
        bare, tapped = map(min, zip(*pairs, strict=True))
        share = 100 * (tapped / bare - 1)
        yield Goal("a tap at 1 %: % of the processor time of blocks", share, 3, at_most=True)
        found = 0
        sample = {name: values[:5000] for name, values in rows.items()}
        for column, values in sample.items():
            fault: Any = values + 3 * values.std() if values.dtype.kind == "f" else "?"
            moved = {**sample, column: np.broadcast_to(fault, 5000).astype(values.dtype)}
            with Watch(runtime, "census", reference=rows) as seen_rows:
                runtime.predict("census", moved, engine="inline")
                seen_rows.fold()
                found += seen_rows.drift()[0].column == column
        yield Goal("faults of one column traced to it: %", 100 * found / len(sample), 90)
