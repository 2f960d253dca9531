"""Fetches that get all rows of several requests at once: each request gets what belongs to it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import flour
from runtime import Runtime
from runtime.errors import NodeFailed

ROW = flour.record(age=float, name=str)


def rows(first: float) -> dict[str, Any]:
    return {"age": [first, first + 1, first + 2], "name": ["a", "b", "c"]}


async def right(ages: Any) -> list[float]:
    await asyncio.sleep(0.01)
    return [float(age) for age in ages]


async def short(ages: Any) -> list[float]:
    return (await right(ages))[:-1]


async def long(ages: Any) -> list[float]:
    return [*await right(ages), 99.0]


async def one(_: Any) -> float:
    return 7.0


def asked(function: Any, **policy: Any) -> list[Any]:
    """What three requests at a time get, and one alone, and its block through a choice."""
    fetched = flour.fetch(function, ROW["age"], gives=float, together=True, **policy)
    chosen = flour.where(ROW["age"] > 101.5, fetched, -9.0)
    with Runtime(executors=1) as runtime:
        runtime.register("g", flour.outputs(x=fetched * 10, y=ROW["age"]), background=False)
        runtime.register("chosen", flour.outputs(x=chosen), background=False)

        async def several() -> list[Any]:
            calls = [runtime.apredict("g", rows(100.0 * n)) for n in (1, 2, 3)]
            calls.append(runtime.apredict("chosen", rows(100.0)))
            calls.append(runtime.apredict("g", {"age": 5.0, "name": "a"}))
            return await asyncio.gather(*calls, return_exceptions=True)

        return asyncio.run(asyncio.wait_for(several(), 20))


def test_each_request_gets_its_own_rows() -> None:
    *blocks, chosen, single = asked(right)
    for number, block in enumerate(blocks, 1):
        assert block["x"].tolist() == [1000.0 * number + 10 * row for row in range(3)]
    assert chosen["x"].tolist() == [-9.0, -9.0, 102.0]
    assert single["x"] == 50.0


@pytest.mark.parametrize("function", [short, long, one])
def test_another_number_of_values_than_of_rows_is_an_error(function: Any) -> None:
    answers = asked(function)
    lucky = function is one  # a value for the one row that is asked, alone or of a choice
    for answer in answers[:3] if lucky else answers:
        assert isinstance(answer, NodeFailed), answer
        assert "row" in str(answer)


@pytest.mark.parametrize("function", [short, long])
def test_or_otherwise_for_each_row(function: Any) -> None:
    *blocks, chosen, single = asked(function, otherwise=-1.0)
    for block in blocks:
        assert block["x"].tolist() == [-10.0] * 3
    assert chosen["x"].tolist() == [-9.0, -9.0, -1.0]
    assert single["x"] == -10.0


def test_nothing_is_no_answer() -> None:
    async def nothing(_: float) -> None:
        return None

    for kind in (float, str):
        flow = flour.outputs(x=flour.fetch(nothing, ROW["age"], gives=kind))
        with Runtime(executors=1) as runtime:
            runtime.register("g", flow, background=False)
            with pytest.raises(NodeFailed, match="None"):
                runtime.predict("g", rows(1.0))
            with pytest.raises(NodeFailed, match="None"):
                runtime.predict("g", {"age": 1.0, "name": "a"})
        with pytest.raises(flour.FlourError, match="None"):
            flow.reference(rows(1.0))


def test_probabilities_of_other_classes_are_not_added() -> None:
    def classifier(*classes: str) -> flour.Flow:
        return flour.vector("x", 2).logistic_classifier([[0.1, -0.2]], 0.5, classes=list(classes))

    with Runtime(executors=1) as runtime:
        runtime.register("one", classifier("no", "yes"), background=False)
        runtime.register("same", classifier("no", "yes"), background=False)
        runtime.register("other", classifier("maybe", "no"), background=False)
        x = flour.vector("x", 2)
        for name in ("same", "other"):
            members = flour.ensemble([flour.model("one")(x), flour.model(name)(x)])
            graph = flour.outputs(p=members.mean())
            if name == "other":
                with pytest.raises(flour.FlourError, match="the same classes"):
                    runtime.register(f"mean-{name}", graph, background=False)
            else:
                runtime.register(f"mean-{name}", graph, background=False)
                assert np.shape(runtime.predict(f"mean-{name}", [1.0, 1.0])["p"]) == (2,)
