"""Is ours fast on lesser processors, at every size of block, from every container?

    python -m bench everywhere [gbt ac blocks containers defaults http threads]

A table of goals, without a report. Ours is compiled for this machine and for lesser levels of
processors; the others run as they were built, and those that have code for several processors
choose this machine's. All take turns, and the best of several rounds counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.contestants import find
from bench.crew import Absent, Member
from bench.experiments import blocks, defaults
from bench.experiments.http_blocks import http_blocks
from bench.experiments.two_threads import two_threads
from bench.goal import Goal
from bench.workload import Saved, Spec, saved

QUESTION = "Lesser processors, sizes of blocks, containers, callers: goals beside the peers"
LEVELS = {"pretzel": "machine", "pretzel_v3": "v3", "pretzel_v2": "v2"}
PEERS = (
    *("onnxruntime", "lightgbm", "lightgbm_fast", "onedal", "tl2cgen", "lleaves", "hessboost"),
    "catboost",
)
BLOCKS = (1, 10, 100, 1000, 5000)
CALLERS = (1, 2, 4)
SPECS = {
    "gbt": ("100 trees of 31 leaves", Spec("gbt", 1, 1.0)),
    "large": ("500 trees of 63 leaves", Spec("gbt", 1, 5.0)),
    "cat": ("CatBoost's, 100 trees of depth 6", Spec("cat", 1, 1.0)),
    "ac": ("AC", Spec("ac", 12, 0.25)),
    "lin": ("LIN", Spec("lin", 8, 1.0)),
    "tab": ("TAB", Spec("tab", 4, 0.1)),
    "sa": ("SA", Spec("sa", 8, 0.05)),
}
PARTS = (*SPECS, "blocks", "containers", "defaults", "http", "threads")
#: One caller takes more turns: in the first ones a runtime learns what its plans cost.
ROUNDS, FIRST_ROUNDS, SECONDS = 3, 6, 0.15
#: A block of more rows is compared with as many different ones alone.
DIFFERENT = 100
#: By how much trees have to be faster than oneDAL with AVX2, by size of block.
TREES = {1: 5.0, 10: 3.0, 100: 3.0, 1000: 1.2, 5000: 1.2}
#: A row in a block may take so much of what one alone takes.
BLOCK_ROW = 1.05
#: Measured beside ours, figures of one run differ by some percent.
EQUAL = 0.97
#: Rows a second by contestant, size of block and callers; 0 callers: of `DIFFERENT` single rows.
Rates = dict[tuple[str, int, int], float]


def measured(names: Sequence[str] = ()) -> Iterator[Goal]:
    """Every goal, with what was measured."""
    for name in names or PARTS:
        if name in SPECS:
            title, spec = SPECS[name]
            try:
                workload = saved(spec)
            except Absent as problem:
                print(f"{title}: left out, {problem}")
                continue
            rates = _rates(title, workload)
            yield from _beside(title, rates, is_trees=spec.name == "gbt", is_ac=name == "ac")
            yield from _alone(title, rates)
        elif name == "blocks":
            yield from blocks.measured()
        elif name == "containers":
            yield from containers()
        elif name == "defaults":
            yield from defaults.measured()
        elif name == "http":
            yield from http_blocks()
        else:
            yield from two_threads(*_tables()[0])


def _rates(title: str, workload: Saved) -> Rates:
    """Rows a second by contestant, size of block and number of callers."""
    members = [member for who in (*LEVELS, *PEERS) if (member := _member(title, who, workload))]
    rates: Rates = {}
    try:
        for rows, callers in ((rows, count) for rows in BLOCKS for count in CALLERS):
            for member in members * (FIRST_ROUNDS if callers == 1 else ROUNDS):
                if callers == 1 or member.name in LEVELS:
                    _ask(member, rates, (member.name, rows, callers), rows, callers=callers)
                    if rows * callers == 1:
                        _ask(member, rates, (member.name, 1, 0), 1, different=DIFFERENT)
            if callers == 1:
                each = [
                    f"{who} {1e6 / rate:.3g}"
                    for (who, size, one), rate in rates.items()
                    if size == rows and one == 1
                ]
                print(f"{title}, blocks of {rows}, us a row: {', '.join(each)}", flush=True)
    finally:
        for member in members:
            member.close()
    return rates


def _ask(member: Member, rates: Rates, key: tuple[str, int, int], rows: int, **more: int) -> None:
    """Have rows answered for a while, and keep the best rate of all turns."""
    asked: dict[str, Any] = {"callers": 1, "batch": rows, "seconds": SECONDS, **more}
    said = member.ask("throughput", **asked)
    rates[key] = max(rates.get(key, 0.0), said["rows"] / said["seconds"])


def _member(title: str, who: str, workload: Saved) -> Member | None:
    """A contestant with its models loaded; None, with the reason printed, if it cannot."""
    folder, count = str(workload.folder), workload.count
    try:
        with Member(who) as converting:
            if workload.name not in converting.kind.workloads:
                return None
            refused = converting.ask("prepare", folder=folder, count=count)["refused"]
        if refused:
            raise Absent(next(iter(refused.values())))
        member = Member(who)
        member.ask("load", folder=folder, numbers=list(range(count)), count=count)
        member.ask("first_calls", start=0)
        if wrong := member.ask("check")["wrong"]:
            print(f"{title}: {who} answers {wrong} rows otherwise than the library")
    except Absent as problem:
        print(f"{title}: without {who}: {problem}")
        return None
    return member


def _beside(title: str, rates: Rates, *, is_trees: bool, is_ac: bool) -> Iterator[Goal]:
    """Ours beside the peers."""
    for rows in BLOCKS:
        for who, level in LEVELS.items():
            label, ours = f"{title}, {level}, blocks of {rows}", rates.get((who, rows, 1), 0.0)
            for peer in PEERS:
                theirs = rates.get((peer, rows, 1))
                if not theirs:
                    continue
                wanted = 5.0 if peer == PEERS[0] and is_ac and level == "v3" and rows > 1 else 1.0
                if peer == "onedal":
                    if not is_trees or level != "v3":
                        continue
                    wanted = TREES[rows]
                yield Goal(f"{label}: times {find(peer).title}", ours / theirs, wanted)


def _alone(title: str, rates: Rates) -> Iterator[Goal]:
    """Ours beside itself: blocks beside single rows, two callers beside one."""
    for who, level in LEVELS.items():
        if not (one := rates.get((who, 1, 1))):
            continue
        for rows in BLOCKS[1:]:
            alone = one if rows < DIFFERENT else rates[who, 1, 0]
            share = alone / rates[who, rows, 1]
            label = f"{title}, {level}: a row in a block of {rows}, of one alone"
            yield Goal(label, share, BLOCK_ROW, at_most=True)
        for callers in CALLERS[1:]:  # single rows have a control of their own: two_threads
            gain = rates[who, 5000, callers] / rates[who, 5000, 1]
            label = f"{title}, {level}, blocks of 5000: {callers} callers, of one"
            yield Goal(label, gain, EQUAL)


def containers() -> Iterator[Goal]:
    """Ours from containers, in this process: against arrays, against the entry, or in time."""
    import pandas as pd
    import polars as pl

    import flour
    import oven

    numbers, mixed = _tables()
    for what, (model, table), limit in (("20 floats", numbers, 40.0), ("mixed", mixed, 80.0)):
        plan = oven.bake(flour.from_sklearn(model, sample=table[:50]), background=False)
        record = table[:1].to_dict("records")
        for name, make in {
            "pandas": partial(pd.DataFrame, record),
            "polars": partial(pl.DataFrame, record),
            "Arrow": partial(_arrow, record),
        }.items():
            kept = _best(partial(plan.run, make()))
            yield _within(f"one row of {what}, {name}", kept, limit)
            label = f"one row of {what}, {name}, made for each call"
            gc.disable()
            least = min(_timed(plan.run, make()) for _ in range(1000))
            gc.enable()
            yield _within(label, least / 1e9, limit)
        columns = {name: table[name].to_numpy() for name in table}
        for name, frame in (("pandas", table), ("polars", pl.from_pandas(table))):
            share = _share(partial(plan.run, frame), partial(plan.run, columns))
            label = f"10,000 rows of {what}, {name}: of its columns as arrays"
            yield Goal(label, share, 1.3, at_most=True)
        dicts = table[:100].to_dict("records")
        yield _within(f"100 dicts, {what}", _best(partial(plan.run, dicts)), 60.0)
    yield from _dropped(numbers[0], np.ascontiguousarray(numbers[1]))


def _dropped(model: Any, rows: NDArray[np.float64]) -> Iterator[Goal]:
    """The forms that people call first, against the entry."""
    import flour
    import oven
    import pretzel

    program = flour.from_sklearn(model)
    plan, alone = (
        oven.bake(each, background=False) for each in (program, program["probabilities"])
    )
    one, block = rows[0], rows[:1]
    entry, alone_entry = plan.entry(), alone.entry()
    dropped = pretzel.compile(model).wait()
    # As they are written, which looks the method up at every call.
    for name, call, least in (
        ("plan.run", lambda: plan.run(block), lambda: entry(block)),
        ("predict_proba", lambda: dropped.predict_proba(block), lambda: alone_entry(one)),
    ):
        yield Goal(f"{name}, of the entry", _share(call, least), 2.0, at_most=True)


def _timed(call: Callable[[object], object], data: object) -> int:
    start = time.thread_time_ns()
    call(data)
    return time.thread_time_ns() - start


def _arrow(records: list[dict[str, Any]]) -> object:
    import pyarrow as pa

    return pa.Table.from_pylist(records)


def _within(name: str, seconds: float, limit: float) -> Goal:
    return Goal(f"{name}, us", 1e6 * seconds, limit, at_most=True)


def _tables() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """A model of floats and one of floats and strings, each with its frame of 10,000 rows."""
    import pandas as pd
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rng = np.random.default_rng(0)
    numbers = pd.DataFrame(rng.normal(size=(10_000, 20)), columns=[f"x{n}" for n in range(20)])
    target = numbers["x0"] > 0
    cities = rng.choice(["Bern", "Rome", "Oslo"], (10_000, 4))
    strings = pd.DataFrame(cities, columns=[f"city{n}" for n in range(4)]).astype(object)
    mixed = pd.concat([numbers.iloc[:, :8], strings], axis=1)
    columns = make_column_transformer(
        (StandardScaler(), list(mixed.columns[:8])), (OneHotEncoder(), list(strings.columns))
    )
    return (
        (make_pipeline(StandardScaler(), LogisticRegression()).fit(numbers, target), numbers),
        (make_pipeline(columns, LogisticRegression()).fit(mixed, target), mixed),
    )


def _best(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    return _bests(call)[0]


def _share(call: Callable[[], object], other: Callable[[], object]) -> float:
    """What a call takes, of what the other takes in the same time."""
    took, whole = _bests(call, other)
    return took / whole


def _bests(*calls: Callable[[], object]) -> list[float]:
    """Seconds of processor time of calls: the least of many bursts, taken in turns."""
    for call in calls:
        call()
    counts = [max(1, min(1000, int(2e-3 / _burst(call, 1)))) for call in calls]
    gc.disable()
    took = [[_burst(*each) for each in zip(calls, counts, strict=True)] for _ in range(60)]
    gc.enable()
    return np.min(took, axis=0).tolist()  # type: ignore[no-any-return]  # a list of floats


def _burst(call: Callable[[], object], calls: int) -> float:
    start = time.thread_time_ns()
    for _ in range(calls):
        call()
    return (time.thread_time_ns() - start) / calls / 1e9
