"""The worker process of one contestant: commands in and answers out, as JSON lines.

All timing happens here, next to the calls; histograms are sent back. It is started by `bench.crew`
as `python -m bench.worker`, with the interpreter of the contestant's environment, and gets its
settings in the first command.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench import machine
from bench.contestant import Contestant, Model, Unsupported
from bench.contestants import find
from bench.histogram import Histogram
from bench.load import BLOCK, OpenLoop
from bench.workload import CHECKED, Pipeline, Saved

Answer = dict[str, Any]

#: Different rows per model in measurements of single rows, as many as in a small block: with one
#: row only, everything that the code reads would stay in cache.
ROWS = 10


class Worker:
    """Executes commands: one method for each."""

    def __init__(self) -> None:
        self._me: Contestant | None = None
        self._models: list[tuple[Pipeline, Model]] = []
        #: Sizes of blocks, with the number of callers, that were measured before.
        self._warm: set[tuple[int, int]] = set()
        self._saved: Saved | None = None

    def hello(self, name: str, threads: int, options: dict[str, Any]) -> Answer:
        """Become a contestant: import its libraries and return their versions."""
        start = time.perf_counter()
        self._me = find(name)(threads, options)
        self._me.start()
        took = time.perf_counter() - start
        return {"versions": self._me.versions(), "pid": os.getpid(), "start_seconds": took}

    def prepare(self, folder: str, count: int) -> Answer:
        """Convert a workload's pipelines; returns the reasons of those that cannot be converted."""
        saved, refused = Saved(Path(folder), count), {}
        for pipeline in saved.pipelines():
            try:
                self._contestant.prepare(pipeline, saved)
            except Unsupported as problem:
                refused[pipeline.number] = str(problem)
        return {"refused": refused}

    def load(self, folder: str, numbers: list[int], count: int) -> Answer:
        """Load further pipelines; returns the time of each."""
        self._saved = saved = Saved(Path(folder), count)
        gc.collect()
        times, cpu = [], time.process_time()
        for number in numbers:
            start = time.perf_counter_ns()
            pipeline = Pipeline(saved.folder, number)
            self._models.append((pipeline, self._contestant.load(pipeline, saved)))
            times.append(time.perf_counter_ns() - start)
        return {
            "seconds": sum(times) / 1e9,
            "first_seconds": times[0] / 1e9,
            "cpu_seconds": time.process_time() - cpu,
            "times": Histogram(times).as_json(),
        }

    def forget(self) -> Answer:
        """Drop every model."""
        self._models.clear()
        gc.unfreeze()
        gc.collect()
        return {}

    def memory(self) -> Answer:
        """The memory of the process."""
        gc.collect()
        return dict(machine.memory())

    def check(self) -> Answer:
        """The largest difference to scikit-learn's answers, for single rows and in a block."""
        worst, wrong, rows = 0.0, 0, 0
        for pipeline, model in self._models:
            expected = pipeline.expected()
            block = model.scores(model.batch(model.block(self._inputs, 0, CHECKED)))
            alone = [model.first(model.one(model.row(self._inputs, row))) for row in range(3)]
            off = np.abs(np.asarray(block, float).reshape(-1) - expected)
            alone_off = np.abs(np.array(alone, float) - expected[:3])
            size = np.maximum(1.0, np.abs(expected))
            worst = max(worst, float((off / size).max()), float((alone_off / size[:3]).max()))
            wrong += int((off / size > 1e-4).sum())
            rows += len(expected)
        return {"worst": worst, "wrong": wrong, "rows": rows}

    def first_calls(self, start: int) -> Answer:
        """The first call of each model since it was loaded: cold.

        This process was stopped while others ran, so nothing of it is in the processor's caches.
        That is not the model's cost, so an earlier model is called first, if there is one.
        """
        if start:
            self._burst(self._models[start - 1][1], 0, 1)
        fresh = self._models[start:]
        return {"times": [self._burst(model, 0, 1)[0] for _, model in fresh]}

    def hot(self, calls: int, warm: int, seconds: float = 60.0) -> Answer:
        """Single rows, one model after the other: every call, and each model's mean.

        For slow models, as many calls as fit into the seconds, three at least.
        """
        every, means = Histogram(), []
        limit = int(1e9 * seconds / len(self._models))
        for _, model in self._models:
            times = self._burst(model, warm, calls, limit)
            every.add(times)
            means.append(sum(times) / len(times))
        return {"times": every.as_json(), "means": means}

    def _burst(self, model: Model, warm: int, calls: int, limit: int = 0) -> list[int]:
        """Nanoseconds of calls with different rows, without garbage collection."""
        rows = [model.row(self._inputs, number) for number in range(min(calls, 20))]
        one, clock = model.one, time.perf_counter_ns
        if limit:
            calls, warm = _counts_that_fit(one, rows, calls, warm, limit)
        for number in range(warm):
            one(rows[number % len(rows)])
        times = [0] * calls
        gc.disable()
        for number in range(calls):
            row = rows[number % len(rows)]
            start = clock()
            one(row)
            times[number] = clock() - start
        gc.enable()
        return times

    def throughput(self, batch: int, seconds: float, callers: int, different: int = ROWS) -> Answer:
        """Rows per second and processor time, all models in turn, called by `callers` threads.

        Single rows are so many `different` ones. The first time, as many seconds go before that are
        not measured: a contestant may learn from its first blocks, or be done with what it began.

        The order is the same for all contestants and mixes sizes: a contestant that does not reach
        all models in time has measured a fair sample of them.
        """
        order = np.random.default_rng(0).permutation(len(self._models)).tolist()
        calls, start = [], time.perf_counter()
        for number, row in itertools.product(order, range(different if batch == 1 else 1)):
            calls.append(self._call(self._models[number][1], batch, row))
            calls[-1][0](calls[-1][1])  # warm-up
            if time.perf_counter() - start > 2 * seconds:
                break
        if batch == 1:  # all models in turn, and then again for the next row
            calls = [call for row in range(different) for call in calls[row::different]]
        size = 16 if (time.perf_counter() - start) / len(calls) < 1e-3 else 1
        groups = [calls[number : number + size] for number in range(0, len(calls), size)]
        rows = [0] * callers

        def ask(caller: int) -> None:
            until = time.perf_counter() + seconds
            for number in _turns(len(groups), caller):
                for call, block in groups[number]:
                    call(block)
                rows[caller] += batch * len(groups[number])
                if time.perf_counter() > until:
                    return

        if (batch, callers) not in self._warm:
            self._warm.add((batch, callers))
            ask(0)
            rows[0] = 0
        cpu, start = time.process_time(), time.perf_counter()
        _on_threads(ask, callers)
        took, cpu = time.perf_counter() - start, time.process_time() - cpu
        return {"rows": sum(rows), "seconds": took, "cpu_seconds": cpu}

    def _call(self, model: Model, batch: int, row: int) -> tuple[Any, Any]:
        """The function to call for a batch of this size, and its argument."""
        if batch == 1:
            return model.one, model.row(self._inputs, row)
        return model.batch, model.block(self._inputs.repeated(batch), 0, batch)

    def sizes(self) -> Answer:
        """Bytes of parameters, equal ones counted once; None if unknown."""
        return {"unique": self._contestant.unique_bytes()}

    def cost(self, seconds: float) -> Answer:
        """Processor time (and energy, if the machine reports it) of single rows, all models."""
        rows = [model.row(self._inputs, 0) for _, model in self._models]
        before, cpu, start = machine.joules(), time.process_time(), time.perf_counter()
        calls = 0
        while time.perf_counter() - start < seconds:
            for (_, model), row in zip(self._models, rows, strict=True):
                model.one(row)
            calls += len(rows)
        used, after = time.process_time() - cpu, machine.joules()
        energy = None if before is None or after is None else after - before
        return {"calls": calls, "cpu_seconds": used, "joules": energy}

    def open_loop(self, rate: float, seconds: float, seed: int) -> Answer:
        """Offer load to all models; returns the outcome."""
        _freeze_collector()
        models = [model for _, model in self._models]
        loop = OpenLoop(self._contestant, models, self._inputs)
        return loop.offer(rate, seconds, seed).as_json()

    def paced(self, rate: float, seconds: float, *, reserve: bool) -> Answer:
        """Blocks of the first model one by one, while the others are offered load."""
        models = [model for _, model in self._models]
        model = self._contestant.reserved(models[0]) if reserve else models[0]
        block = model.block(self._inputs, 0, BLOCK)
        self._submit_paced(
            model, block, seconds / 4
        )  # so that its cost is measured before, reserved or not
        loop = OpenLoop(self._contestant, models[1:], self._inputs)
        _freeze_collector()
        others = threading.Thread(target=loop.offer, args=(rate, seconds + 0.2, 3))
        if rate:
            others.start()
            time.sleep(0.2)
        times = self._submit_paced(model, block, seconds)
        if rate:
            others.join()
        return {"times": times.as_json()}

    def _submit_paced(self, model: Model, block: Any, seconds: float) -> Histogram:
        """Submit a block, and again a millisecond after each answer; returns the times."""
        times, end = Histogram(), time.perf_counter() + seconds
        while time.perf_counter() < end:
            time.sleep(0.001)
            start = time.perf_counter_ns()
            self._contestant.submit(model, block).result()
            times.add([time.perf_counter_ns() - start])
        return times

    def bye(self) -> Answer:
        """End."""
        if self._me is not None:
            self._me.close()
        return {}

    @property
    def _contestant(self) -> Contestant:
        assert self._me is not None, "the first command is hello"
        return self._me

    @property
    def _inputs(self) -> Any:
        assert self._saved is not None, "nothing was loaded"
        return self._saved.inputs


def _counts_that_fit(
    one: Any, rows: list[Any], calls: int, warm: int, limit: int
) -> tuple[int, int]:
    """The numbers of calls and of warm-up calls that fit into `limit` nanoseconds."""
    start = time.perf_counter_ns()
    one(rows[0])
    fit = limit // max(time.perf_counter_ns() - start, 1)
    return min(calls, max(3, fit)), min(warm, max(0, fit // 4))


def _freeze_collector() -> None:
    """Exclude the objects loaded so far from garbage collection, as servers do.

    Otherwise a collection stops all threads during the load for as long as scanning all models
    takes.
    """
    gc.collect()
    gc.freeze()


def _turns(count: int, first: int) -> Iterator[int]:
    """Numbers below `count` in an endless cycle, starting at `first`."""
    number = first % count
    while True:
        yield number
        number = (number + 1) % count


def _on_threads(work: Any, callers: int) -> None:
    """Run `work(n)` on `callers` threads; on this one, if it is one."""
    if callers == 1:
        work(0)
        return
    threads = [threading.Thread(target=work, args=(n,)) for n in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def answer(worker: Worker, command: dict[str, Any]) -> Answer:
    """The answer to a command; an error is an answer too."""
    name = command.pop("do")
    try:
        outcome: Answer = getattr(worker, name)(**command)
        return outcome
    except Exception as problem:  # noqa: BLE001 (libraries of others: anything can come)
        traceback.print_exc()
        return {"error": f"{type(problem).__name__}: {problem}"[:400]}


def main() -> None:
    """Answer commands until there are no more. Output of libraries goes to standard error."""
    warnings.simplefilter("ignore")
    machine.end_with_parent()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        replies.write(json.dumps(answer(worker, json.loads(line))) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
