"""Whole machines: two cores measured, and from that 64 cores and two sockets simulated.

    python -m bench machines

Processes, each on a core of its own, answer blocks of rows from one file of parameters: alone, two
at once, and beside one that copies memory as fast as it can. Workers share memory alone, so a row
costs its own time and the time of the bytes that it takes from memory, of which an upper bound is
counted: of all that it reads, only what a second-level cache holds is read once for a block. Cores
of a simulated machine add up until the bytes of all fill what a socket can bring.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bench.goal import Goal

QUESTION = "Rates of two cores, and what 64 cores and two sockets would do"
BLOCK, SECONDS, ROUNDS = 1000, 0.5, 5
#: Bytes a second from the memory of a socket: three quarters of what eight channels DDR4-3200, or
#: twelve DDR5-4800, bring at most; and the share of that which another socket gets.
_DDR4, _DDR5, _REMOTE = 0.75 * 204.8e9, 0.75 * 460.8e9, 0.4
#: Machines: the cores of a socket, and the bytes a second that each socket gets of the parameters.
MACHINES = {
    "32": (32, [_DDR4]),
    "2 x 32": (32, [_DDR4] * 2),
    "one copy": (32, [_DDR4, _REMOTE * _DDR4]),
    "2 x 64, DDR5": (64, [_DDR5] * 2),
}


@dataclass(frozen=True)
class Workload:
    """A model, its rows, and the bytes of memory that a row takes at most."""

    name: str
    model: Any
    rows: Any
    bytes_a_row: float


def measured() -> Iterator[Goal]:
    """The table of every workload, with the goals of what two cores do."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise SystemExit("this needs two cores")
    with TemporaryDirectory() as folder:
        made = [_saved(each, Path(folder)) for each in _workloads()]
        copied = _rates([partial(_copies), None], cores)[0]
        print(f"# one core copies {copied / 1e9:.1f} GB a second")
        print(f"{'':16}{'rows/s':>12}{'bytes':>8}{'GB/s':>7}", *(f"{n:>14}" for n in MACHINES))
        for workload, path in made:
            ask = partial(_answers, str(path), workload.rows)
            alone, _ = _rates([ask, None], cores)
            both = sum(_rates([ask, ask], cores))
            beside = _rates([ask, _copies], cores)[0]
            size = workload.bytes_a_row
            times = [simulated(alone, size, *each) / alone for each in MACHINES.values()]
            print(f"{workload.name:16}{alone:12,.0f}{size:8,.0f}{alone * size / 1e9:7.2f}",
                  *(f"{each:13.1f}x" for each in times))  # fmt: skip
            yield Goal(f"{workload.name}: two cores, of one, x", both / alone, 1.8)
            yield Goal(f"{workload.name}: beside one that copies, of its rate", beside / alone, 0.8)


def simulated(alone: float, bytes_a_row: float, cores: int, memory: list[float]) -> float:
    """Rows a second of all cores of all sockets."""
    return sum(min(cores * alone, rate / bytes_a_row) for rate in memory)


def _workloads() -> Iterator[Workload]:
    from lightgbm import LGBMClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(10 * BLOCK, 30))
    labels = rows[:, 0] + rows[:, 1] * rows[:, 2] > 0
    linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, labels)
    yield Workload("linear", linear, rows, 8 * 30 + 32)
    for trees, leaves in ((100, 31), (500, 63)):
        model = LGBMClassifier(n_estimators=trees, num_leaves=leaves, verbose=-1, n_jobs=1)
        model.fit(rows, labels)
        held = trees * leaves * 24  # read once for a block
        yield Workload(f"trees {trees}x{leaves}", model, rows, 8 * 30 + 32 + held / BLOCK)
    words = np.array([f"word{number:05}" for number in range(50_000)])
    picked = (rng.zipf(1.2, size=(2 * BLOCK, 40)) - 1) % len(words)
    texts = [" ".join(words[each]) for each in picked]
    text = make_pipeline(TfidfVectorizer(), LogisticRegression())
    text.fit([*texts, " ".join(words)], np.arange(len(texts) + 1) % 2)
    # Each of 40 words has a line of its own in the dictionary, its text, and its weights.
    yield Workload("text", text, texts, 40 * (9 + 3 * 64))


def _saved(workload: Workload, folder: Path) -> tuple[Workload, Path]:
    import flour
    import oven

    path = folder / f"{workload.name}.pretzel"
    oven.bake(flour.from_sklearn(workload.model), background=False).save(path)
    return workload, path


def _rates(works: list[Callable[[], Iterator[float]] | None], cores: list[int]) -> list[float]:
    """The best round of each, at once; each in a process on a core of its own."""
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(sum(work is not None for work in works))
    pipes = []
    for work, core in zip(works, cores, strict=False):
        if work is not None:
            here, there = context.Pipe()
            process = context.Process(target=_run, args=(work, core, gate, there), daemon=True)
            process.start()
            pipes.append((here, process))
    found = [max(here.recv()) for here, _ in pipes]
    for _, process in pipes:
        process.join(60)
    return [*found, 0.0][:2]


def _run(work: Callable[[], Iterator[float]], core: int, gate: Any, pipe: Any) -> None:
    os.sched_setaffinity(0, {core})
    turns = work()
    next(turns)  # what is made once
    rates = []
    for _ in range(ROUNDS):
        gate.wait()
        rates.append(next(turns))
    pipe.send(rates)


def _answers(path: str, rows: Any) -> Iterator[float]:
    """Rows a second, in each turn."""
    import oven

    plan = oven.load(path, background=False)
    blocks = [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]
    plan.run(blocks[0])
    yield 0.0
    while True:
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            plan.run(blocks[done % len(blocks)])
            done += 1
        yield done * BLOCK / (time.perf_counter() - start)


def _copies() -> Iterator[float]:
    """Bytes read and written a second, in each turn."""
    one, other = np.ones(1 << 25), np.ones(1 << 25)
    yield 0.0
    while True:
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < SECONDS:
            np.copyto(other, one)
            done += 2 * one.nbytes
        yield done / (time.perf_counter() - start)
