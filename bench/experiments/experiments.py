"""What experiments on endpoints cost, and what they must never change.

    python -m bench experiments

A table by itself: no contestants and no report. Calls take turns, many short rounds of each, by the
processor time of the thread, and the least counts. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from bench.experiments import rollout_simulations, shadow_servers
from bench.experiments.graphs import least
from bench.goal import Goal

QUESTION = "Routes, shadows and promotions of endpoints: what they cost, and what they change"
#: Rows that are answered with a shadow and without; keys of the splits; changes under traffic.
ROWS, KEYS, CHANGES, THREADS = 100_000, 1_000_000, 100_000, 16
_KINDS = ("caf\u00e9", "\u4e2d\u6587", "\U0001f600", "", "x\u0000y", None, 7)


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    from runtime import Runtime

    parts: tuple[Callable[[Any], Iterator[Goal]], ...]
    parts = (_costs, _together, _identity, _keys, _traffic)
    for part in parts:
        with Runtime(result_bytes=0) as runtime:  # rows are asked again and again here
            yield from part(runtime)
    yield from rollout_simulations.measured()
    yield from shadow_servers.measured()


def _registered(runtime: Any, name: str, versions: int = 2) -> None:
    for version in range(1, versions + 1):
        import flour

        row = flour.record(country=flour.Category(), amount=float)
        flow = flour.outputs(score=row["amount"] * float(version))
        runtime.register(name, flow, version=version, activate=version == 1, background=False)


# --- costs ---------------------------------------------------------------------------------------


def _costs(runtime: Any) -> Iterator[Goal]:
    """Calls of endpoints with and without routes."""
    import flour
    from runtime.routing import Route

    names, x = ("plain", "champion", "shadow"), flour.vector("x", 4)
    for name in names:
        for version in (1, 2):
            flow = flour.outputs(top=x.add([float(version)] * 4).max())
            runtime.register(name, flow, activate=version == 1, background=False)
    runtime.route("champion", "champion@1")
    runtime.route("shadow", "shadow@1", shadow="shadow@2", inline=False)
    row = {"country": "DE", "amount": 50.0}
    columns, none = "country == 'DE' and amount > 100", "headers['x'] == 'y'"
    ways: dict[str, Callable[[], object]]
    ways = {name: partial(runtime.predict, name, [1.0, 2.0, 3.0, 4.0]) for name in names}
    ways["columns"] = partial(Route("m@1", rules={columns: "m@2"}).choose, row)
    ways["none"] = partial(Route("m@1", rules={none: "m@2"}).choose, row)
    times = {name: seconds * 1e9 for name, seconds in least(ways).items()}
    plain = times["plain"]
    yield _most("a champion alone, over no route, ns", 20, times["champion"] - plain)
    one = times["columns"] - times["none"]
    yield _most("a condition of two columns, over one of no column, ns", 50, one)
    shadowed = _with_pauses({name: ways[name] for name in ("plain", "shadow")})
    later = 1e9 * (shadowed["shadow"] - shadowed["plain"])
    yield _most("a deferred shadow of every request, ns", 200, later)


def _together(runtime: Any) -> Iterator[Goal]:
    """A champion whose shadow is asked with it, beside the champion alone: time of the caller."""
    for name, title, limit, champion, challenger, rows in _shadowed():
        for version, flow in enumerate((champion, challenger), 1):
            runtime.register(name, flow, version, activate=version == 1, background=False)
        runtime.register(f"{name}-alone", champion, background=False)
        runtime.wait(120)
        runtime.route(name, f"{name}@1", shadow=f"{name}@2")
        end = time.monotonic() + 60
        open_ends = "put together", "next rows"
        while runtime.routes.mirrors.state(name).endswith(open_ends) and time.monotonic() < end:
            for row in rows:
                runtime.predict(name, row)
            time.sleep(0.01)
        turns = iter(range(10**12))

        def ask(asked: str, *, rows: list[Any] = rows, turns: Iterator[int] = turns) -> object:
            return runtime.predict(asked, rows[next(turns) % len(rows)])

        ways: dict[str, Callable[[], object]]
        ways = {each: partial(ask, each) for each in (name, f"{name}-alone")}
        found, way = _ratio(least(ways)), runtime.routes.mirrors.state(name)[:60]
        runtime.experiments.compare(name)
        compared = f"{_ratio(_with_pauses(ways)):.2f} with answers compared"
        yield _most(f"{title}, asked {way}: over the champion alone ({compared})", limit, found)


def _ratio(found: dict[str, float]) -> float:
    one, other = found.values()
    return one / other


def _with_pauses(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The least seconds of a call, in rounds after which what waits for a shadow is taken."""
    least_of = dict.fromkeys(ways, math.inf)
    for _ in range(20):
        for name, way in ways.items():
            start = time.thread_time()
            for _ in range(400):
                way()
            least_of[name] = min(least_of[name], (time.thread_time() - start) / 400)
            time.sleep(0.1)
    return least_of


def _shadowed() -> Iterator[tuple[str, str, float, Any, Any, list[Any]]]:
    """Champions and challengers with the most that both may take, and rows."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    import flour

    rng = np.random.default_rng(0)
    words = [f"word{number}" for number in range(20_000)]
    texts = [" ".join(rng.choice(words, 100)) for _ in range(400)]
    labels = [rng.integers(0, 2, 400) for _ in range(2)]
    both = [
        make_pipeline(TfidfVectorizer(vocabulary=words), LogisticRegression()).fit(texts, each)
        for each in labels
    ]
    flows = [flour.from_sklearn(each) for each in both]
    yield "text", "20,000 words, a shadow of other weights", 1.15, flows[0], flows[1], texts
    rows = rng.normal(size=(3000, 20))
    rows[rng.random(rows.shape) < 0.05] = math.nan
    for limit, trees in ((1.5, 50), (2.05, 100)):
        made = [
            make_pipeline(
                SimpleImputer(),
                StandardScaler(),
                RandomForestClassifier(count, max_depth=8, random_state=count + place),
            ).fit(rows, rng.integers(0, 2, len(rows)))
            for place, count in enumerate((100, trees))
        ]
        flows = [flour.from_sklearn(each) for each in made]
        title = f"100 trees behind a scaler, a shadow of {trees}"
        yield f"forest{trees}", title, limit, flows[0], flows[1], rows[:400].tolist()


def _most(name: str, limit: float, measured: float) -> Goal:
    return Goal(name, measured, limit, at_most=True)


# --- what must not change ------------------------------------------------------------------------


def _identity(runtime: Any) -> Iterator[Goal]:
    """Answers with a shadow of everything, byte for byte those without."""
    _registered(runtime, "m", 3)
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=ROWS)
    numbers[::97] = math.nan
    kinds = rng.integers(0, len(_KINDS), ROWS)
    rows: list[dict[str, Any]] = [
        {"country": _KINDS[kind], "amount": amount if kind < 6 or number % 2 else "no number"}
        for number, (kind, amount) in enumerate(zip(kinds, numbers.tolist(), strict=True))
    ]
    before = [_told(runtime, row) for row in rows]
    runtime.route("m", "m@1", shadow="m@2")
    differing = sum(_told(runtime, row) != told for row, told in zip(rows, before, strict=True))
    errors = sum(told.startswith("error") for told in before)
    yield _most(
        f"{ROWS:,} rows ({errors:,} errors) with a shadow: answers that differ", 0, differing
    )


def _told(runtime: Any, row: object) -> str:
    """An answer, or its error, as text that differs where any bit does."""
    try:
        answers = runtime.predict("m", row)
    except Exception as problem:  # noqa: BLE001 (errors are answers, too)
        return f"error {type(problem).__name__} {problem}"
    return repr(
        {
            name: value.hex() if isinstance(value, float) else value
            for name, value in answers.items()
        }
    )


def _keys(runtime: Any) -> Iterator[Goal]:
    """Where a million keys fall, and whether any moves back while a share grows."""
    _registered(runtime, "m")
    steps = (5.0, 20.0, 50.0, 100.0)
    routes = [runtime.route("m", "m@1", split={"m@2": share}, by="user") for share in steps]
    taken, back = [0] * len(steps), 0
    for user in range(KEYS):
        row = {"user": user}
        sides = [route.choose(row) == "m@2" for route in routes]
        taken = [count + side for count, side in zip(taken, sides, strict=True)]
        back += any(one and not other for one, other in pairwise(sides))
    off = max(abs(100 * n / KEYS - share) for n, share in zip(taken, steps, strict=True))
    yield _most(f"{KEYS:,} keys: most points off a share", 0.15, off)
    yield _most(f"{KEYS:,} keys: that move back while a share grows", 0, back)
    shares = iter(range(10**9))

    def change() -> object:
        share = 5.0 + next(shares) % 90
        return runtime.route("m", "m@1", split={"m@2": share}, by="user")

    yield _most("a change of a weight, ms", 1, least({"change": change})["change"] * 1e3)


def _traffic(runtime: Any) -> Iterator[Goal]:
    """Sixteen threads ask while champions change: no error, and no answer of two versions."""
    _registered(runtime, "m")
    runtime.route("m", "m@1", split={"m@2": 100}, header="x-user")
    over = threading.Event()
    wrong: list[object] = []
    asked = [0] * THREADS

    def ask(thread: int) -> None:
        amount = 1.0 + thread
        row = {"country": "UK", "amount": amount}
        while not over.is_set():
            try:
                answers = runtime.predict("m", row)
                if answers["score"] not in (amount, 2 * amount):
                    wrong.append(answers)
            except Exception as problem:  # noqa: BLE001 (it is counted)
                wrong.append(problem)
            asked[thread] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(THREADS)]
    for each in threads:
        each.start()
    took = []
    for _ in range(CHANGES // 2):
        start = time.thread_time()
        runtime.promote("m", "m@2")
        runtime.rollback("m")
        took.append(time.thread_time() - start)
    over.set()
    for each in threads:
        each.join()
    yield _most(f"{CHANGES:,} changes, {sum(asked):,} calls: errors, mixed answers", 0, len(wrong))
    slow = float(np.quantile(took, 0.999)) * 1e3  # the slowest ones collect garbage
    yield _most("a promotion with its rollback, 999 of 1,000, ms", 1, slow)
