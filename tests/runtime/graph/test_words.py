"""Words of graphs: what they take, and what is refused when a graph is written or registered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flour
from flour.core.errors import FlourError, ParameterError, TypeMismatch
from runtime import Runtime
from tests.runtime.graph.models import columns, people, row, table_model

ROWS = columns(people(64, seed=7))


def test_probabilities_are_picked_by_the_label_of_their_class() -> None:
    model = table_model(0)
    classes = ["no", "yes"]
    for name in classes:
        picked = model["probabilities"][name].reference(people(8))["output"]
        place = classes.index(name)
        assert np.array_equal(picked, model.reference(people(8))["probabilities"][:, place])
    with Runtime(executors=1) as runtime:
        runtime.register("risk", model, background=False)
        risk = flour.model("risk")(row()["age", "income", "city"])
        graph = flour.outputs(no=risk["probabilities"]["no"], yes=risk["probabilities"][1])
        runtime.register("graph", graph, background=False)
        answers = runtime.predict("graph", ROWS)
        np.testing.assert_allclose(answers["no"] + answers["yes"], 1.0)
        assert not np.array_equal(answers["no"], answers["yes"])
        with pytest.raises(TypeMismatch, match="no output 'yess'") as refused:
            runtime.register("typo", flour.outputs(x=risk["probabilities"]["yess"]))
        assert "no, yes" in str(refused.value)
        assert runtime.graphs.facts("graph") is not None
        assert runtime.graphs.facts("graph") == runtime.graphs.facts(
            "graph@1"
        ) or runtime.graphs.facts("graph@1")
        assert runtime.graphs.facts("risk") is runtime.graphs.facts("nothing") is None


async def two(_a: Any, _b: Any) -> float:
    return 0.0


async def with_default(_a: Any, _b: Any = None) -> float:
    return 0.0


async def any_number(*_: Any) -> float:
    return 0.0


class Store:
    async def load(self, _a: Any) -> float:
        return 0.0

    async def __call__(self, _a: Any, _b: Any) -> float:
        return 0.0


@pytest.mark.parametrize(
    ("load", "counts"),
    [
        (two, {2}),
        (with_default, {1, 2}),
        (any_number, {1, 2, 3}),
        (Store().load, {1}),
        (Store(), {2}),
        ([two, with_default], {2}),
    ],
)
def test_a_fetch_reads_as_many_values_as_its_coroutine_takes(load: Any, counts: set[int]) -> None:
    reads = [row()["age"], row()["income"], row()["age"] * 2]
    for count in (1, 2, 3):
        if count in counts:
            flour.fetch(load, *reads[:count], gives=float)
            flour.fetch(load, *reads[:count], gives=float, per=row()["age"], limit=1)
            continue
        with pytest.raises(ParameterError, match=f"{count} values") as refused:
            flour.fetch(load, *reads[:count], gives=float)
        assert "test_words.py" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("retries", -1), ("limit", -1), ("deadline", -0.5), ("backoff", -1.0), ("keep", -1.0)),
        *(("timeout", value) for value in (-1.0, float("nan"), float("inf"))),
    ],
)
def test_options_of_a_fetch_are_named_when_they_do_not_fit(name: str, value: Any) -> None:
    with pytest.raises(FlourError, match="such an option") as refused:
        flour.fetch(any_number, row()["age"], gives=float, **{name: value})
    assert f"{name}={value!r}" in str(refused.value)
    assert "test_words.py" in str(refused.value)


def test_a_loop_goes_on_with_a_value_of_one_kind() -> None:
    start = row()["age"]
    with pytest.raises(TypeMismatch, match="a loop changes the type") as refused:
        flour.repeat(lambda x: x.concat(x), start, times=3)
    assert "float64" in str(refused.value)
    with Runtime(executors=1) as runtime:
        runtime.register("risk", table_model(0), background=False)
        score = flour.model("risk")(row()["age", "income", "city"])["probabilities"]
        runtime.register("fine", flour.outputs(x=flour.repeat(lambda x: x * 0.5, score, times=3)))
        grows = flour.repeat(lambda x: x.concat(x), score, times=2)
        picks = flour.repeat(lambda x: x[0:1], score, times=2, until=lambda x: x[0] > 0.5)
        for name, loop in (("grows", grows), ("picks", picks)):
            with pytest.raises(TypeMismatch, match="a loop changes the type") as refused:
                runtime.register(name, flour.outputs(x=loop))
            assert "test_words.py" in str(refused.value)
            assert runtime.graphs.facts(name) is None
