"""What graphs of models cost, beside their models called one after the other.

    python -m bench graphs

A table by itself: no contestants and no report. Short things take turns, many short rounds of
each, by the processor time of the thread, and the least counts; what waits goes by the clock. Ends
with 1 where a goal is missed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from bench.experiments import graph_servers
from bench.goal import Goal

QUESTION = "Graphs of models against their models called by hand"
ROUNDS, SLICE_SECONDS = 60, 2e-3
#: Models of the ensemble, words of their vocabulary, words of a text.
MEMBERS, WORDS, LENGTH = 10, 5000, 40
#: Requests that wait at the same time, and how long.
REQUESTS, WAIT = 1000, 0.05
#: Columns of the heavy models: each reads 8 MiB for a block.
HEAVY = 8192
Call = Callable[[], object]


def _goal(name: str, limit: float, measured: float, unit: str, *, at_least: bool = False) -> Goal:
    return Goal(f"{name}, {unit}", measured, limit, at_most=not at_least)


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    from runtime import Runtime

    parts = (_chain, _shared_chain, _ensemble, _fifty, _heavy, _switch, _fetches, _waiting)
    for part in parts:
        with Runtime(result_bytes=0) as runtime:  # rows are asked again and again here
            yield from part(runtime)
    yield from graph_servers.measured()


# --- models --------------------------------------------------------------------------------------


def _register(runtime: Any, name: str, flow: Any) -> Callable[[Any], object]:
    """Register a program, and let its code be there."""
    runtime.register(name, flow, background=False)
    return partial(runtime.predict, name)


def _linear(seed: int, width: int) -> Any:
    import flour

    weights = np.random.default_rng(seed).normal(size=(1, width))
    return flour.vector("x", width).linear_classifier(weights, 0.1, classes=["no", "yes"])


def _text(seed: int, without: int = 0) -> Any:
    """A linear model over tf-idf of single words; models without the same words share them."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    import flour

    words = [f"word{number}" for number in range(without, WORDS)]
    rng, counts = np.random.default_rng(seed), TfidfVectorizer(vocabulary=words)
    rows = counts.fit_transform([" ".join(rng.choice(words, LENGTH)) for _ in range(20)])
    model = LogisticRegression().fit(rows, np.arange(20) % 2)
    model.coef_ = rng.normal(size=model.coef_.shape)
    counts.idf_ = np.random.default_rng(0).uniform(1, 3, len(words))
    return flour.from_sklearn(make_pipeline(counts, model))


def _document() -> str:
    rng = np.random.default_rng(0)
    return " ".join(f"word{number}" for number in rng.integers(0, WORDS, LENGTH))


# --- one after the other -------------------------------------------------------------------------


def _chain(runtime: Any) -> Iterator[Goal]:
    """Three models, each on the answer of the one before."""
    import flour

    calls = [_register(runtime, f"m{n}", _linear(n, 4)) for n in range(3)]
    x = flour.vector("x", 4)
    flow = x
    for n in range(3):
        score = flour.model(f"m{n}")(flow)["scores"]
        flow = flour.concat(x[:3], score) if n < 2 else score
    graph = _register(runtime, "chain", flour.outputs(score=flow))
    row = np.arange(4.0)
    times = least({"graph": partial(graph, row), **_by_hand(calls, row)})
    parts = sum(seconds for name, seconds in times.items() if name != "graph")
    wanted = parts * 1e6 + 0.3
    yield _goal("chain of three, of its models and 0.1 us each", wanted, times["graph"] * 1e6, "us")


def _shared_chain(runtime: Any) -> Iterator[Goal]:
    """Two text models of one vocabulary, and a third on their scores."""
    import flour

    document = _document()
    calls = [_register(runtime, f"t{n}", _text(n)) for n in range(2)]
    last = _register(runtime, "last", _linear(0, 2))
    note = flour.text("note")
    scores = [flour.model(f"t{n}")(note)["scores"] for n in range(2)]
    graph = _register(runtime, "stacked", flour.model("last")(*scores))
    ways = _by_hand(calls, document)
    ways["last"] = partial(last, np.array([0.1, 0.2]))
    times = least({"graph": partial(graph, document), **ways})
    parts = sum(seconds for name, seconds in times.items() if name != "graph")
    yield _goal("stack of three with one vocabulary, of parts", 0.9, times["graph"] / parts, "x")


def _ensemble(runtime: Any) -> Iterator[Goal]:
    """Ten text models of one vocabulary."""
    import flour

    document = _document()
    calls = [_register(runtime, f"t{n}", _text(n)) for n in range(MEMBERS)]
    note = flour.text("note")
    members = [flour.model(f"t{n}")(note)["scores"] for n in range(MEMBERS)]
    graph = _register(runtime, "mean", flour.ensemble(members).mean().named("score"))
    times = least({"graph": partial(graph, document), **_by_hand(calls, document)})
    parts = sum(seconds for name, seconds in times.items() if name != "graph")
    yield _goal("ten with one vocabulary, averaged", 5, parts / times["graph"], "x", at_least=True)


def _fifty(runtime: Any) -> Iterator[Goal]:
    """Fifty text models of one vocabulary on one text: as a graph, and as fifty calls."""
    import flour

    document, note = _document(), flour.text("note")
    calls = [_register(runtime, f"t{n}", _text(n)) for n in range(50)]
    scores = {f"s{n}": flour.model(f"t{n}")(note)["scores"] for n in range(50)}
    graph = _register(runtime, "fifty", flour.outputs(**scores))

    def by_hand() -> None:
        for call in calls:
            call(document)

    times = least({"graph": partial(graph, document), "calls": by_hand})
    gain = times["calls"] / times["graph"]
    yield _goal("fifty models with one vocabulary, one text", 3, gain, "x", at_least=True)


def _heavy(runtime: Any) -> Iterator[Goal]:
    """Eight models of some 1 ms each on a block, side by side on two cores.

    What the caller's thread is spared is independent of what else the machine does: it goes by the
    processor time of that thread, and of all threads together. The clock counts only where both
    cores are free. Their parameters, 64 MiB together, are read from memory, whose bandwidth both
    cores share: bare threads show what that leaves.
    """
    import flour

    rng, x = np.random.default_rng(0), flour.vector("x", HEAVY)
    flows = [x.linear(rng.normal(size=(128, HEAVY)), np.zeros(128)).sum() for _ in range(8)]
    calls = [_register(runtime, f"h{n}", flow) for n, flow in enumerate(flows)]
    rows = rng.normal(size=(8, HEAVY))
    members = [flour.model(f"h{n}")(x) for n in range(8)]
    graph = _register(runtime, "heavy", flour.outputs(y=flour.ensemble(members).mean()))

    def by_hand() -> None:
        for call in calls:
            call(rows)

    def bare() -> None:
        halves = [
            threading.Thread(target=lambda half=half: [call(rows) for call in half])
            for half in (calls[:4], calls[4:])
        ]
        for half in halves:
            half.start()
        for half in halves:
            half.join()

    times: dict[str, list[tuple[float, float, float]]] = {"graph": [], "calls": [], "bare": []}
    for _ in range(2 * ROUNDS):
        times["graph"].append(_accounted(partial(graph, rows)))
        times["calls"].append(_accounted(by_hand))
        times["bare"].append(_accounted(bare))
    (own, every, _), (alone, _, _), _ = (np.median(each, axis=0) for each in times.values())
    own, every, alone = float(own), float(every), float(alone)
    yield _goal(
        "eight heavy models: time of the caller's thread", 1.8, alone / own, "x", at_least=True
    )
    yield _goal("eight heavy models: time of all threads, of by hand", 1.1, every / alone, "x")
    wall = {name: min(each[2] for each in found) for name, found in times.items()}
    limit = wall["calls"] / wall["bare"]
    print(f"two bare threads that call four of the eight each: {limit:.2f}x by the clock")
    gain = wall["calls"] / wall["graph"]
    yield _goal("eight heavy models by the clock", 1.8, gain, "x", at_least=True)


def _accounted(call: Call) -> tuple[float, float, float]:
    """Seconds of processor time of this thread, of the process, and by the clock."""
    clocks = (time.thread_time, time.process_time, time.perf_counter)
    before = [clock() for clock in clocks]
    call()
    own, every, wall = (clock() - start for clock, start in zip(clocks, before, strict=True))
    return own, every, wall


def _by_hand(calls: list[Callable[[Any], object]], data: object) -> dict[str, Call]:
    return {str(number): partial(call, data) for number, call in enumerate(calls)}


# --- choices -------------------------------------------------------------------------------------


def _switch(runtime: Any) -> Iterator[Goal]:
    """Sixteen predicates, and a branch that is a constant: what a predicate costs."""
    import flour

    x = flour.vector("x", 4)
    graphs = {
        count: _register(
            runtime,
            f"switch{count}",
            flour.first_match([(x[0] > float(n), x[1] * n) for n in range(count)], x[2]).named("y"),
        )
        for count in (1, 16)
    }
    row = np.array([-1.0, 1.0, 2.0, 3.0])
    times = least({str(count): partial(graph, row) for count, graph in graphs.items()})
    each = (times["16"] - times["1"]) / 15
    yield _goal("switch: a predicate", 50, max(0.0, each * 1e9), "ns")
    yield from _branches(runtime)


def _branches(runtime: Any) -> Iterator[Goal]:
    """Text models behind a switch: the cost of the one that is taken, and of going there."""
    import flour

    document = _document()
    calls = [_register(runtime, f"b{n}", _text(n, n)) for n in range(4)]
    row = flour.record(kind=float, note=flour.text)
    sides = [flour.model(f"b{n}")(row["note"])["scores"] for n in range(4)]
    pairs = [(row["kind"] == float(n), side) for n, side in enumerate(sides[:3])]
    graph = _register(runtime, "branches", flour.first_match(pairs, sides[3]).named("score"))
    data = {"kind": 1.0, "note": document}
    before = _taken(runtime)
    graph(data)
    yield _goal("switch of four models: models that run", 1, _taken(runtime) - before, "models")
    times = least({"graph": partial(graph, data), "one": partial(calls[1], document)})
    more = (times["graph"] - times["one"]) * 1e6
    yield _goal("switch of four models, over the one that is taken", 15, more, "us")
    block = {"kind": np.arange(400.0) % 4, "note": [document] * 400}
    ways = {"graph": partial(graph, block), "one": partial(calls[1], [document] * 400)}
    times = least(ways)
    yield _goal("switch of 400 rows, of one model", 1.5, times["graph"] / times["one"], "x")


def _taken(runtime: Any) -> int:
    plan = runtime.endpoints.versions()["branches@1"].plan
    return sum(step.calls for step in plan.graph.steps if step.path)


# --- waiting -------------------------------------------------------------------------------------


def _fetches(runtime: Any) -> Iterator[Goal]:
    """Two independent values, each of 120 ms."""
    import flour

    async def slow(x: float) -> float:
        await asyncio.sleep(0.12)
        return x

    x = flour.record(x=float)["x"]
    both = [flour.fetch(slow, x, gives=float, name=f"slow{n}") for n in range(2)]
    graph = _register(runtime, "both", flour.outputs(sum=both[0] + both[1]))
    took = min(_timed(partial(graph, {"x": 1.0})) for _ in range(5))
    yield _goal("two fetches of 120 ms, of one after the other", 0.55, took / 0.24, "x")


def _waiting(runtime: Any) -> Iterator[Goal]:
    """A thousand requests that wait, beside coroutines that only sleep."""
    import flour

    async def sleeps(x: float) -> float:
        await asyncio.sleep(WAIT)
        return x

    x = flour.record(x=float)["x"]
    graph = flour.outputs(y=flour.fetch(sleeps, x, gives=float) * 2.0)
    _register(runtime, "waits", graph)
    before = threading.active_count()
    threads = [0]

    async def one(call: Callable[[float], Any], number: int, late: list[float]) -> None:
        await asyncio.sleep(number * 2e-3)  # 500 a second
        start = time.perf_counter()
        await call(float(number))
        late.append(time.perf_counter() - start - WAIT)
        threads[0] = max(threads[0], threading.active_count() - before)

    async def all_of_them(call: Callable[[float], Any], count: int) -> list[float]:
        late: list[float] = []
        await asyncio.gather(*(one(call, number, late) for number in range(count)))
        return late

    def through(number: float) -> Any:
        return runtime.apredict("waits", {"x": number})

    def p99(call: Callable[[float], Any]) -> float:
        return float(np.quantile(asyncio.run(all_of_them(call, REQUESTS)), 0.99))

    p99(through)
    extra = min(p99(through) - p99(sleeps) for _ in range(3))
    yield _goal("waiting 50 ms, 500 a second: p99 over a coroutine's", 0.2, extra * 1e3, "ms")

    async def burst(call: Callable[[float], Any]) -> float:
        start = time.perf_counter()
        await asyncio.gather(*(call(float(number)) for number in range(REQUESTS)))
        return (time.perf_counter() - start - WAIT) / REQUESTS

    each = min(asyncio.run(burst(through)) for _ in range(5))
    yield _goal("1,000 requests that wait at once: each", 0.2, each * 1e3, "ms")
    yield _goal("1,000 requests that wait at once: threads", 1, threads[0] + 1, "threads")


# --- time ----------------------------------------------------------------------------------------


def _timed(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def least(ways: Mapping[str, Call]) -> dict[str, float]:
    """Seconds of a call: ways take turns, and the least of many short rounds counts."""
    counts = {name: _count(call) for name, call in ways.items()}
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, call in ways.items():
            start = time.thread_time_ns()
            for _ in range(counts[name]):
                call()
            seconds = (time.thread_time_ns() - start) / 1e9 / counts[name]
            found[name] = min(found[name], seconds)
    return found


def _count(call: Call) -> int:
    """How many calls a round has."""
    for _ in range(200):
        call()
    start = time.thread_time_ns()
    for _ in range(50):
        call()
    return max(1, int(SLICE_SECONDS / max(1e-9, (time.thread_time_ns() - start) / 50 / 1e9)))
