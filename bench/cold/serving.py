"""`pretzel serve` with an empty cache: until a folder of plans of different shapes is ready."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bench.cold.goals import Line, Told, at_most
from bench.cold.processes import TRIES, new_user
from bench.cold.workloads import WIDTH, workloads

READY = 2.0
PLANS = 20


def measured() -> Iterator[Line]:
    """The goal of the server."""
    with tempfile.TemporaryDirectory() as place:
        shapes = _write(Path(place))
        before = _processor_time()
        seconds = min(_until_ready(Path(place)) for _ in range(TRIES))
        processor = (_processor_time() - before) / TRIES
    said = f"{PLANS} plans, of which {shapes} differ in their machine code"
    yield Told("serve", f"{said}; {processor:.1f} s of processor time until it was ended")
    yield at_most(f"serve: {PLANS} plans ready, s", READY, seconds)


def _write(folder: Path) -> int:
    """Import and save the plans; how many of them differ in their code."""
    import flour
    import oven

    sources = set()
    for number, (model, sample) in enumerate(_models()):
        plan = oven.bake(flour.from_sklearn(model, sample))
        sources.add(tuple(stage.source for stage in plan.program.stages))
        path = folder / f"model{number}" / "1" / "model.pretzel"
        path.parent.mkdir(parents=True)
        plan.save(path, durable=False)
    return len(sources)


def _models() -> Iterator[tuple[Any, Any]]:
    """Fitted models, with rows to import them by: all of the other workloads, and mixtures."""
    from sklearn.decomposition import PCA
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
    from sklearn.tree import DecisionTreeRegressor

    rest = PLANS
    for workload in workloads():
        if not isinstance(workload.model, bytes):
            rest -= 1
            yield workload.model, workload.sample
    rows = np.random.default_rng(1).normal(size=(200, WIDTH))
    target = rows[:, 0] * 2 + rows[:, 1]
    first = (StandardScaler(), MinMaxScaler(), SimpleImputer())
    second = (PCA(3), PolynomialFeatures(2))
    last = (
        Ridge(),
        DecisionTreeRegressor(),
        MLPRegressor(hidden_layer_sizes=(8,), max_iter=20),
        LogisticRegression(),
    )
    steps = list(product(first, second, last))
    for chosen in steps[: rest - 1]:
        answers = target > 0 if isinstance(chosen[-1], LogisticRegression) else target
        yield make_pipeline(*chosen).fit(rows, answers), None
    yield HistGradientBoostingRegressor(max_iter=30).fit(rows, target), None


def _processor_time() -> float:
    """Of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _until_ready(folder: Path) -> float:
    """Seconds from the start of a server to the line that says it answers."""
    command = [sys.executable, "-W", "ignore", "-m", "runtime", "serve", str(folder), "--port", "0"]
    with new_user() as env:
        start = time.perf_counter()
        with subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            seconds = time.perf_counter() - start
            process.terminate()
    if f"{PLANS} models at http" not in line:
        raise RuntimeError(f"the server did not start: {line.strip()}")
    return seconds
