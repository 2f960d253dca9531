"""What keeping answers costs, and whether kept answers are computed again bit for bit.

    python -m bench provenance

Costs are processor time of the calling thread, the least of many short repetitions; the endpoint
that is kept and the one that is not take turns in one process.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.goal import Goal

QUESTION = "provenance: what keeping answers costs, and whether they are recomputed bit for bit"
_ANSWERS, _COLUMNS = 10_000, 20
_ROUNDS, _CALLS = 60, 100


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _recomputed(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield from _costs(Path(folder))


def _trees(seed: int) -> Any:
    from sklearn.ensemble import GradientBoostingClassifier

    import flour

    rows = _rows(seed, 400)
    model = GradientBoostingClassifier(n_estimators=20, random_state=seed)
    return flour.from_sklearn(model.fit(rows, rows[:, 0] + rows[:, 1] > 0))


def _linear(seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import flour

    rows = _rows(seed, 400)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    return flour.from_sklearn(model.fit(rows, rows[:, 0] > 0))


def _rows(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).normal(size=(count, _COLUMNS))


def _recomputed(folder: Path) -> Iterator[Goal]:
    """Answers of three versions, one after the other, are asked for by another runtime."""
    from runtime import Runtime

    kept: list[str] = []
    rows = _rows(0, _ANSWERS)
    with Runtime() as runtime:
        for part, program in enumerate((_linear(1), _trees(2), _linear(3))):
            runtime.register("m", program, background=False)
            keeper = runtime.keep("m", folder) if part == 0 else runtime.routes.keeper("m")
            for row in rows[part::3]:
                answer: Any = runtime.predict("m", row)
                kept.append(answer.id)
            keeper.flush()  # type: ignore[union-attr]  # it is there
    with Runtime() as runtime:
        runtime.register("m", _linear(4), background=False)
        runtime.keep("m", folder)
        start = time.perf_counter()
        equal = sum(runtime.why(each).agrees() for each in kept)
        each = (time.perf_counter() - start) / len(kept)
    yield Goal("answers that are recomputed bit-equal after a restart", equal, _ANSWERS)
    yield Goal("us for one of them, plans loaded", each * 1e6, 1000, at_most=True)
    size = sum(path.stat().st_size for path in folder.glob("*.log")) / len(kept)
    yield Goal("bytes on disk for one, with its 20 numbers", size, 1000, at_most=True)


def _costs(folder: Path) -> Iterator[Goal]:
    from runtime import Runtime

    with Runtime() as runtime:
        for name in ("kept", "other"):
            runtime.register(name, _linear(1), background=False)
        row = _rows(0, 1)[0]
        before = _least(partial(runtime.predict, "other", row))
        keeper = runtime.keep("kept", folder)
        best = {"kept": float("inf"), "other": float("inf")}
        for _ in range(_ROUNDS):
            for name, least in best.items():
                best[name] = min(least, _slice(partial(runtime.predict, name, row)))
            keeper.flush()
        more = best["kept"] - best["other"]
        yield Goal("us that keeping adds to a call of one row", more / 1e3, 5, at_most=True)
        others = best["other"] - before
        yield Goal("ns that it adds to calls of another endpoint", others, 20, at_most=True)
        yield Goal("answers that were dropped", keeper.dropped, 0, at_most=True)


def _least(call: partial[Any]) -> float:
    return min(_slice(call) for _ in range(_ROUNDS))


def _slice(call: partial[Any]) -> float:
    start = time.thread_time_ns()
    for _ in range(_CALLS):
        call()
    return (time.thread_time_ns() - start) / _CALLS
