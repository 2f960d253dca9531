"""Answers that are reconstructed: how exact, how late, and what they cost.

    python -m bench parity

A table by itself. Tails are from simulated service times, and from a small run with processes.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from heapq import heapify, heappop, heappush
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import oven
from bench.goal import Goal
from runtime.cluster.parity import Coded, Endpoint, Hedged, ParityCode, recoverable, train

QUESTION = "Answers of late replicas, reconstructed from a parity query, against more replicas"
#: Replicas, and requests of a simulated run; a stalled replica or request takes so much longer.
REPLICAS, REQUESTS, STALL = 12, 100_000, 20.0
#: Seconds of the small run: of a request, of one at the stalled replica, between two requests.
SERVICE, STALLED, BETWEEN, ASKED = 0.004, 0.045, 0.012, 1200
Times = NDArray[np.float64]


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    yield from _exactness()
    yield from _codec_time()
    yield from _tails()
    yield _processes()
    yield from _learned()


# --- exactness and cost --------------------------------------------------------------------------


def _digits() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    return rows.astype(np.float64), labels


def _scores() -> Any:
    """The program that replicas run for a scaled logistic regression of digits."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import flour

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=100)).fit(*_digits())
    return recoverable(flour.from_sklearn(model)).scores


def _exactness() -> Iterator[Goal]:
    plan = oven.bake(_scores())
    rows, _ = _digits()
    (constant,) = plan.run(np.zeros((1, 64)))["output"]
    for group in (2, 3, 4, 8):
        for parities in (1, 2):
            queries = rows[: 160 // group * group].reshape(group, -1, 64)
            code = ParityCode(group, parities)
            answers = [plan.run(each)["output"] for each in queries]
            coded = dict(enumerate(plan.run(each)["output"] for each in code.encode(queries)))
            found = code.decode(dict(enumerate(answers[parities:], parities)), coded, constant)
            error = max(
                float(np.abs(found[lost] - answers[lost]).max()) for lost in range(parities)
            )
            error /= max(float(np.abs(each).max()) for each in answers)
            name = f"k={group}, {parities} lost: error of scores, 1e-12 of the largest"
            yield Goal(name, error * 1e12, 1.0, at_most=True)


def _codec_time() -> Iterator[Goal]:
    code, rows = ParityCode(2), np.random.default_rng(0).normal(size=(2, 1, 1000))
    parity = {0: code.encode(rows)[0]}
    answer = {1: rows[1]}
    yield Goal(
        "encode two queries of 1,000 values, us",
        _least(lambda: code.encode(rows)),
        93,
        at_most=True,
    )
    decode = _least(lambda: code.decode(answer, parity, 0.5))
    yield Goal("decode one answer of 1,000 values, us", decode, 8, at_most=True)


def _least(call: Callable[[], object]) -> float:
    least = np.inf
    for _ in range(200):
        start = time.thread_time_ns()
        for _ in range(20):
            call()
        least = min(least, (time.thread_time_ns() - start) / 20e3)
    return float(least)


# --- simulated tails -----------------------------------------------------------------------------


def _tails() -> Iterator[Goal]:
    """At equal resources and one queue for each kind of replica."""
    for stall in ("requests", "replica"):
        for load in (0.4, 0.6, 0.75, 0.9):
            ways = {
                way: _run(way, load, stall) for way in ("equal", "hedged", "duplicates", "coded")
            }
            told = {way: f"{_gap(times):.1f}" for way, times in ways.items()}
            print(f"# slow {stall}, load {load}: p99.9 - p50 in service times:", told)
            ratio = _gap(ways["equal"]) / _gap(ways["coded"])
            name = "one stalled replica" if stall == "replica" else "1 % slow requests"
            yield Goal(f"{name}, load {load}: tail gap of equal resources, x", ratio, 2.0)


def _gap(times: Times) -> float:
    return float(np.percentile(times, 99.9) - np.percentile(times, 50))


class _Pool:
    """Replicas behind one queue; one of them may be slow."""

    def __init__(
        self, size: int, generator: np.random.Generator, stall: str, *, slow: bool
    ) -> None:
        self._free = [(0.0, n) for n in range(size)]
        heapify(self._free)
        self._generator, self._requests = generator, stall == "requests"
        self._slow = 0 if slow and stall == "replica" else -1

    def ends(self, arrival: float) -> float:
        """When a request that arrives now is answered; arrivals are in order."""
        free, number = heappop(self._free)
        service = float(self._generator.uniform(0.9, 1.1))
        if number == self._slow or (self._requests and self._generator.random() < 0.01):
            service *= STALL
        end = max(arrival, free) + service
        heappush(self._free, (end, number))
        return end


def _run(way: str, load: float, stall: str, group: int = 2) -> Times:
    """How long requests take; `load` is how busy as many replicas are without redundancy."""
    generator = np.random.default_rng(0)
    mean = 1 + 0.01 * (STALL - 1) if stall == "requests" else 1.0
    arrivals = np.cumsum(generator.exponential(mean / (load * REPLICAS), REQUESTS))
    spare = REPLICAS // group
    if way == "coded":
        return _coded(
            arrivals,
            _Pool(REPLICAS, generator, stall, slow=True),
            _Pool(spare, generator, stall, slow=False),
            group,
        )
    pool = _Pool(REPLICAS + spare, generator, stall, slow=True)
    if way == "equal":
        return np.array([pool.ends(arrival) for arrival in arrivals]) - arrivals
    wait = 2.0 if way == "hedged" else 0.0
    events = [(float(arrival), n, True) for n, arrival in enumerate(arrivals)]
    ends = np.full(len(arrivals), np.inf)
    while events:
        at, number, first = heappop(events)
        if first or ends[number] > at:
            ends[number] = min(ends[number], pool.ends(at))
        if first:
            heappush(events, (at + wait, number, False))
    times: Times = ends - arrivals
    return times


def _coded(arrivals: Times, pool: _Pool, parities: _Pool, group: int) -> Times:
    ends = np.array([pool.ends(arrival) for arrival in arrivals]).reshape(-1, group)
    coded = np.array([parities.ends(arrival) for arrival in arrivals[group - 1 :: group]])
    others = np.array([np.delete(ends, n, axis=1).max(axis=1) for n in range(group)]).T
    found: Times = np.minimum(ends, np.maximum(others, coded[:, None])).ravel() - arrivals
    return found


# --- a small run ---------------------------------------------------------------------------------


def _processes() -> Goal:
    """Four replicas with two for parities, against six: one replica is stalled."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "scores.pretzel")
        plan = oven.bake(_scores())
        plan.save(path)
        (constant,) = plan.run(np.zeros((1, 64)))["output"]
        gaps = {}
        with _Workers(path, 6) as ends:
            ways: dict[str, Coded | Hedged] = {
                "equal": Hedged(ends),
                "hedged": Hedged(ends, after=3 * SERVICE),
                "coded": Coded(ends[:4], [ends[4:]], ParityCode(2), constant=constant),
            }
            for way, front in ways.items():
                times, marked = asyncio.run(_asked(front, plan))
                gaps[way] = _gap(times)
                print(
                    f"# processes, {way}: p50 {np.median(times) * 1e3:.1f} ms, "
                    f"gap {gaps[way] * 1e3:.1f} ms, reconstructed {marked}"
                )
    return Goal(
        "six processes, one stalled: tail gap of equal resources, x",
        gaps["equal"] / gaps["coded"],
        2.0,
    )


async def _asked(front: Coded | Hedged, plan: Any) -> tuple[Times, int]:
    rows, _ = _digits()
    wanted = plan.run(rows)["output"]
    times, marked = np.zeros(ASKED), 0

    async def one(number: int, start: float) -> None:
        nonlocal marked
        at = number % len(rows)
        answer = await front(rows[at : at + 1])
        times[number] = time.perf_counter() - start
        marked += answer.reconstructed
        np.testing.assert_allclose(answer.values[0], wanted[at], atol=1e-10)

    begin, tasks = time.perf_counter(), []
    for number in range(ASKED):
        due = begin + number * BETWEEN
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number, max(due, time.perf_counter()))))
    await asyncio.gather(*tasks)
    return times, marked


class _Workers:
    """Processes that each load a plan; the first one is slow."""

    def __init__(self, path: str, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(count)]
        self._ours = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(
                target=_serve, args=(theirs, path, SERVICE if n else STALLED), daemon=True
            )
            for n, (_, theirs) in enumerate(pipes)
        ]
        self._threads = [ThreadPoolExecutor(1) for _ in pipes]

    def __enter__(self) -> list[Endpoint]:
        """Start them; returns when all have answered."""
        for process in self._processes:
            process.start()
        for pipe in self._ours:
            _call(pipe, np.zeros((1, 64)))
        return [self._endpoint(*each) for each in zip(self._ours, self._threads, strict=True)]

    def _endpoint(self, pipe: Connection, threads: ThreadPoolExecutor) -> Endpoint:
        async def ask(rows: NDArray[Any]) -> NDArray[Any]:
            return await asyncio.get_running_loop().run_in_executor(threads, _call, pipe, rows)

        return ask

    def __exit__(self, *_: object) -> None:
        """End them."""
        for threads in self._threads:
            threads.shutdown(cancel_futures=True)
        for pipe in self._ours:
            pipe.close()
        for process in self._processes:
            process.join(5)


def _call(pipe: Connection, rows: NDArray[Any]) -> NDArray[Any]:
    pipe.send_bytes(rows.tobytes())
    return np.frombuffer(pipe.recv_bytes()).reshape(len(rows), -1)


def _serve(pipe: Connection, path: str, seconds: float) -> None:
    import oven

    plan = oven.load(path, background=False)
    while True:
        try:
            rows = np.frombuffer(pipe.recv_bytes()).reshape(-1, 64)
        except EOFError:
            return
        time.sleep(seconds)
        pipe.send_bytes(plan.run(rows)["output"].tobytes())


# --- learned parity models -----------------------------------------------------------------------


def _learned() -> Iterator[Goal]:
    """A forest of digits; degraded accuracy in points below the forest's own."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.neural_network import MLPRegressor

    rows, labels = _digits()
    order = np.random.default_rng(0).permutation(len(rows))
    held, learnt = order[: len(order) * 3 // 10], order[len(order) * 3 // 10 :]
    forest = RandomForestClassifier(100, max_depth=10, random_state=0).fit(
        rows[learnt], labels[learnt]
    )
    options: dict[str, Any] = {
        "hidden_layer_sizes": (256, 128),
        "early_stopping": True,
        "max_iter": 60,
        "random_state": 0,
    }
    ways: tuple[tuple[int, Literal["sum", "concatenation"], float | None], ...] = (
        (2, "sum", 6.5),
        (2, "concatenation", 3.0),
        (3, "concatenation", None),
        (4, "concatenation", None),
    )
    for group, encoder, most in ways:
        found = train(
            forest.predict_proba,
            rows[learnt],
            (rows[held], labels[held]),
            MLPRegressor(**options),
            group=group,
            encoder=encoder,
        )
        overall = 0.9 * found.accuracy + 0.1 * found.degraded
        print(
            f"# forest, k={group}, {encoder}: {found.accuracy:.3f}, "
            f"degraded {found.degraded:.3f}, with 10 % lost {overall:.3f}"
        )
        if most is not None:
            lost = 100 * (found.accuracy - found.degraded)
            name = f"forest, k={group}, {encoder}: points lost when reconstructed"
            yield Goal(name, lost, most, at_most=True)
