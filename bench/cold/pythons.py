"""One row on other versions of Python, beside this one's.

`scripts/test-environments` makes their environments; a version without one is left out. Run as
a program, with saved plans, it says the processor time of one row of each, and of a built-in
function, in nanoseconds.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench import environments
from bench.cold.goals import Line, Told, at_most
from bench.cold.processes import Failed, asked
from bench.cold.workloads import WIDTH, workloads
from bench.machine import ROOT

OTHERS = ("3.12", "3.13", "3.14")
WITHIN = 1.2
_MODELS, _ROUNDS, _CALLS, _REPEATS = 2, 3, 200, 50


def measured() -> Iterator[Line]:
    """The goals of the other versions."""
    import flour
    import oven

    pythons = {name: environments.python(f"python{name}") for name in OTHERS}
    present = {name: path for name, path in pythons.items() if path is not None}
    for name in pythons.keys() - present.keys():
        yield Told(f"Python {name}", "not measured: scripts/test-environments makes it a place")
    with tempfile.TemporaryDirectory() as place:
        paths = []
        chosen = list(islice(workloads(), _MODELS))
        for number, workload in enumerate(chosen):
            paths.append(str(Path(place) / f"{number}.pretzel"))
            plan = oven.bake(flour.from_sklearn(workload.model), background=False)
            plan.save(paths[-1], durable=False)
        here = ".".join(map(str, sys.version_info[:2]))
        took, refused = _in_turns({here: Path(sys.executable), **present}, paths)
    for name in present:
        if name in refused:
            yield Told(f"Python {name}", f"not measured: {refused[name]}")
            continue
        *rows, builtin = zip(took[here], took[name], strict=True)
        said = f"{builtin[1] / builtin[0]:.2f}"
        yield Told(f"Python {name}: a function of the interpreter's own, by {here}'s", said)
        for workload, (ours, theirs) in zip(chosen, rows, strict=True):
            yield at_most(f"Python {name}: {workload.name}, by {here}'s", WITHIN, theirs / ours)


def _in_turns(
    pythons: dict[str, Path], paths: list[str]
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """The least of several rounds for each version, and why others cannot run."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    took: dict[str, list[float]] = {}
    refused: dict[str, str] = {}
    for _ in range(_ROUNDS):
        for name in pythons.keys() - refused.keys():
            try:
                made = asked(pythons[name], __name__, *paths, env=env)
            except Failed as problem:
                refused[name] = str(problem)
                continue
            took[name] = np.minimum(made, took.get(name, made)).tolist()
    return took, refused


def _main(*paths: str) -> None:
    import oven
    from runtime import Runtime

    with Runtime() as runtime:
        for path in paths:
            runtime.register(path, oven.load(path, background=False))
        row = np.random.default_rng(0).normal(size=WIDTH)
        rows = [_nanoseconds(runtime.predict, path, row) for path in paths]
        print(json.dumps([*rows, _nanoseconds(divmod, 5.5, 2.0)]))


def _nanoseconds(call: Callable[..., Any], *given: Any) -> float:
    least = float("inf")
    for _ in range(_REPEATS):
        start = time.thread_time_ns()
        for _ in range(_CALLS):
            call(*given)
        least = min(least, time.thread_time_ns() - start)
    return least / _CALLS


if __name__ == "__main__":
    _main(*sys.argv[1:])
