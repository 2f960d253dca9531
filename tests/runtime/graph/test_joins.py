"""The first of several answers, what has come by a deadline, calls for each client, loops."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
from runtime import Runtime
from runtime.errors import NodeFailed
from tests.house import until
from tests.runtime.plans import shift_flow

FOREVER = 3600.0


def column() -> flour.Flow:
    return flour.record(x=float)["x"]


async def near(x: float) -> float:
    await asyncio.sleep(0.001)
    return x + 1.0


async def far(x: float) -> float:
    await asyncio.sleep(FOREVER)
    return x


async def broken(x: float) -> float:
    raise ConnectionError(f"no route for {x}")


async def wrong(x: float) -> Any:
    return [x, x]


def test_the_first_good_answer_of_several_counts(runtime: Runtime) -> None:
    left: list[float] = []

    async def slow(x: float) -> float:
        try:
            return await far(x)
        finally:
            left.append(x)

    flow = flour.fetch([broken, slow, wrong, near], column(), gives=float)
    runtime.register("any", flour.outputs(y=flow), background=False)
    assert runtime.predict("any", {"x": 1.0}) == {"y": 2.0}
    until(lambda: left == [1.0])  # it was called, and cancelled
    assert runtime.predict("any", {"x": np.arange(3.0)})["y"].tolist() == [1.0, 2.0, 3.0]


def test_where_all_of_several_fail_the_node_is_named(runtime: Runtime) -> None:
    flow = flour.fetch([broken, wrong], column(), gives=float)
    runtime.register("none", flour.outputs(y=flow), background=False)
    with pytest.raises(NodeFailed, match="broken_or_wrong") as caught:
        runtime.predict("none", {"x": 1.0})
    assert caught.value.where == "none.broken_or_wrong"
    with pytest.raises(flour.FlourError, match="has coroutines"):
        flour.fetch([], column(), gives=float)


def test_an_outer_join_goes_on_with_what_has_come_by_its_deadline(runtime: Runtime) -> None:
    """A deadline is for all tries together, and for those that wait at a node's door."""
    policy: dict[str, Any] = {"gives": float, "deadline": 0.05, "otherwise": -1.0}
    there = flour.fetch(near, column(), **policy)
    gone = flour.fetch(far, column(), **policy, retries=100, timeout=0.01, backoff=0.0)
    queued = flour.fetch(far, column(), **policy, limit=1, name="queued")
    runtime.register("outer", flour.outputs(a=there, b=gone, c=queued), background=False)
    start = time.monotonic()
    answer = runtime.predict("outer", {"x": np.arange(4.0)})
    assert time.monotonic() - start < 10
    assert answer["a"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert answer["b"].tolist() == answer["c"].tolist() == [-1.0] * 4
    alone = flour.fetch(far, column(), gives=float, deadline=0.02)
    runtime.register("late", flour.outputs(y=alone), background=False)
    with pytest.raises(NodeFailed, match="in time") as caught:
        runtime.predict("late", {"x": 1.0})
    assert caught.value.late
    assert "0.02 s" in str(caught.value)


def test_a_limit_for_each_client(runtime: Runtime) -> None:
    now, most = Counter[str](), Counter[str]()

    async def counted(x: float) -> float:
        client = "a" if x < 8 else "b"
        now[client] += 1
        now["all"] += 1
        for key in (client, "all"):
            most[key] = max(most[key], now[key])
        await asyncio.sleep(0.005)
        now[client] -= 1
        now["all"] -= 1
        return x

    row = flour.record(x=float, client=str)
    flow = flour.fetch(counted, row["x"], gives=float, limit=2, per=row["client"])
    runtime.register("fair", flour.outputs(x=flow), background=False)
    rows: dict[str, Any] = {"x": np.arange(16.0), "client": ["a"] * 8 + ["b"] * 8}
    assert np.array_equal(runtime.predict("fair", rows)["x"], rows["x"])
    assert most == {"a": 2, "b": 2, "all": 4}
    assert runtime.predict("fair", {"x": 3.0, "client": "a"}) == {"x": 3.0}
    with pytest.raises(flour.FlourError, match="per= or together"):
        flour.fetch(counted, row["x"], gives=float, per=row["client"], together=True)


def test_loops_end_at_their_count_or_for_each_row_when_it_says(runtime: Runtime) -> None:
    runtime.register("shift", shift_flow(1.0), background=False)
    x = column()

    def step(value: flour.Flow) -> flour.Flow:
        return flour.model("shift")(value, value, value, value)["top"]

    counted = flour.repeat(step, x, times=3)
    bounded = flour.repeat(step, x, times=5, until=lambda value: value >= 10.0)
    runtime.register("loops", flour.outputs(three=counted, ten=bounded), background=False)
    answer = runtime.predict("loops", {"x": np.array([0.0, 7.5, 20.0])})
    assert answer["three"].tolist() == [3.0, 10.5, 23.0]
    assert answer["ten"].tolist() == [5.0, 10.5, 20.0]
    for times in (0, 65):
        with pytest.raises(flour.FlourError, match="bounded by a count"):
            flour.repeat(step, x, times=times)


def test_a_text_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "graph.toml"
    path.write_text(
        '[inputs]\nx = "number"\nclient = "category"\n[nodes.y]\n'
        f'fetch = ["{__name__}:near", "{__name__}:broken"]\nreads = "x"\nper = "client"\n'
        'gives = "number"\nlimit = 2\ndeadline = 5.0\n[outputs]\ny = "y"\n'
    )
    written = flour.load_graph(path, allow_python=True)
    row = flour.record(x=float, client=flour.Category())
    policy: dict[str, Any] = {"gives": float, "limit": 2, "deadline": 5.0, "name": "y"}
    fetched = flour.fetch([near, broken], row["x"], per=row["client"], **policy)
    same = flour.outputs(y=fetched)
    assert [item.op for item in written.nodes()][-1] == [item.op for item in same.nodes()][-1]
    saved = tmp_path / "saved.graph"
    flour.save_graph(written, saved)
    assert flour.load_graph(saved, allow_python=True).digest == written.digest
