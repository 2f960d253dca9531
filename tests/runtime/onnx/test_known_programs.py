"""`from_onnx` of models whose structure is known: the same programs and plans, imported or not."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flour
import oven
from flour.core import provenance
from flour.tracing import model_flow
from flour.tracing.model_flow import ModelFlow
from oven.plans import template_lookup
from oven.plans.plan import Plan
from oven.plans.skeleton import digests_in
from oven.plans.template_lookup import TemplateHit
from runtime import Runtime
from tests.runtime.onnx.test_known import (
    ASKED,
    PLAIN,
    RNG,
    ROWS,
    TEXT,
    TEXTS,
    _nothing_known,
    layers,
    lists,
    scaled,
    text,
)

__all__ = ["_nothing_known"]


def is_known(flow: flour.Flow) -> bool:
    """Whether a program is of a model that has not been imported."""
    return isinstance(flow, ModelFlow) and isinstance(flow.model, TemplateHit)


def afresh(data: bytes) -> Plan:
    """A plan as if the model were the first of its kind."""
    with template_lookup.no_templates():
        return oven.bake(flour.from_onnx(data))


def assert_the_same(data: bytes, rows: NDArray[Any]) -> bool:
    """A plan that may come out of a template is the one made afresh; whether it did."""
    flow = flour.from_onnx(data)
    got, want = oven.bake(flow), afresh(data)
    assert got.digest == want.digest
    assert {*digests_in(got.node_digests)} == {*digests_in(want.node_digests)}
    assert (got.inputs, got.outputs, got.classes) == (want.inputs, want.outputs, want.classes)
    assert (got.mixes_rows, got.row_work) == (want.mixes_rows, want.row_work)
    assert got.stage_kinds == want.stage_kinds
    was_known = is_known(flow)
    assert got.unfolded is not was_known
    answers, others = got.run(rows), want.run(rows)
    assert answers.keys() == others.keys()
    for name, value in answers.items():
        assert value.dtype == others[name].dtype
        assert value.tobytes() == others[name].tobytes()
    # Last: this imports the model.
    assert flow.digest == want.flow.digest
    assert got.flow.outputs == want.flow.outputs
    assert got.optimised.outputs == want.optimised.outputs
    return was_known


def learnt(data: bytes, count: int = 2) -> None:
    """Bake models until the next is known."""
    for _ in range(count):
        assert not is_known(flour.from_onnx(data))
        oven.bake(flour.from_onnx(data))


@pytest.mark.parametrize("first", ["plain", "neither does", "columns without weight"])
def test_what_is_asked_of_numbers_is_asked_of_every_model(first: str) -> None:
    learnt(scaled(*PLAIN) if first == "plain" else scaled(*ASKED[first]))
    again = [assert_the_same(scaled(*values), ROWS) for values in ASKED.values()]
    assert any(again)
    assert not all(again), "they are not one program"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(lists(3), lists(3), lists(6), lists(2)), min_size=4, max_size=5))
def test_any_classifiers(models: list[tuple[Any, ...]]) -> None:
    for values in models:
        assert_the_same(scaled(*values), ROWS[:5])


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(lists(9), lists(6), lists(3)), min_size=4, max_size=5))
def test_any_layers(models: list[tuple[Any, ...]]) -> None:
    for values in models:
        assert_the_same(layers(*values), ROWS[:5])


def test_texts() -> None:
    learnt(text(*TEXT))
    other = text([2, 1, 3, 1.5, 1], RNG.normal(size=(2, 5)), [0.3, -0.1])
    assert assert_the_same(other, TEXTS[:, 0])
    _, weights, bias = TEXT
    turned = text([2, 1, 3, 1.5, 1], weights, bias, ["e", "ddd", "äh", "a", "bb"])
    assert assert_the_same(turned, TEXTS[:, 0])


def test_a_known_program_is_a_program_like_any_other() -> None:
    data = scaled(*PLAIN)
    learnt(data)
    want = known_as_usual(data)
    for look in (
        lambda flow: flow.types,
        lambda flow: flow.inputs(),
        lambda flow: flow["p"].digest,
        lambda flow: flow.to_onnx(),
        lambda flow: flow.reference(ROWS)["p"].tobytes(),
        lambda flow: [*flow.outputs],
        lambda flow: flow.digest,
    ):
        flow = flour.from_onnx(data)
        assert is_known(flow)
        assert look(flow) == look(want)
        assert flow.outputs == want.outputs
    with pytest.raises(AttributeError, match="no_such_method"):
        flour.from_onnx(data).no_such_method  # type: ignore[attr-defined]  # noqa: B018 (it is the test)


def known_as_usual(data: bytes) -> flour.Flow:
    """The program of a model that is imported whatever is known."""
    return flour.from_onnx(data, fixed={}, prove=True)


def test_nodes_come_from_where_the_program_was_asked_for() -> None:
    data = scaled(*PLAIN)
    learnt(data)
    flow = flour.from_onnx(data)
    line = provenance.here().line - 1
    found = {place for each in flow.origins().values() for place in each}
    assert {place[:2] for place in found} == {(Path(__file__).name, line)}
    assert any(place.step for place in found)


def test_exact_plans_are_baked_as_ever() -> None:
    data = scaled(*PLAIN)
    learnt(data)
    flow = flour.from_onnx(data)
    plan = oven.bake(flow, exact=True)
    assert plan.exact
    assert plan.unfolded
    assert oven.bake(flow).run(ROWS)["p"].tobytes() == afresh(data).run(ROWS)["p"].tobytes()


def test_a_program_is_baked_as_often_as_asked() -> None:
    data = scaled(*PLAIN)
    learnt(data)
    flow = flour.from_onnx(data)
    one, other = oven.bake(flow), oven.bake(flow, background=True)
    assert one is not other
    assert one.run(ROWS)["p"].tobytes() == other.wait().run(ROWS)["p"].tobytes()
    half = ROWS.astype(np.float64)
    assert one.run(half)["p"].tobytes() == afresh(data).run(half)["p"].tobytes()


def test_known_models_are_registered_without_being_imported() -> None:
    data = [scaled(PLAIN[0], PLAIN[1], PLAIN[2], [0.1 * k, 0.2, -0.3]) for k in range(1, 6)]
    with Runtime() as served:
        for k, each in enumerate(data):
            served.register(f"m{k}", flour.from_onnx(each))
        plans = [each.plan for each in served.versions().values()]
        assert [plan is not None and plan.unfolded for plan in plans] == [True] * 2 + [False] * 3
        for k, each in enumerate(data):
            got = served.predict(f"m{k}", ROWS)
            assert got["p"].tobytes() == afresh(each).run(ROWS)["p"].tobytes()


def test_a_known_plan_is_saved(tmp_path: Path) -> None:
    data = scaled(*PLAIN)
    learnt(data)
    plan = oven.bake(flour.from_onnx(data))
    plan.save(tmp_path / "model.pretzel")
    loaded = oven.load(tmp_path / "model.pretzel")
    assert loaded.digest == plan.digest
    assert loaded.run(ROWS)["p"].tobytes() == plan.run(ROWS)["p"].tobytes()


def test_other_ways_of_importing_are_other_programs() -> None:
    data = scaled(*PLAIN)
    learnt(data)
    assert not is_known(flour.from_onnx(data, native_only=True))
    assert not is_known(flour.from_onnx(data, rows=True))
    assert not is_known(flour.from_onnx(data, prove=True))
    assert is_known(flour.from_onnx(data))


def test_models_bytes_go_when_a_program_is_baked() -> None:
    flow = flour.from_onnx(scaled(*PLAIN))
    assert isinstance(flow, ModelFlow)
    model = weakref.ref(flow.model)
    plan = oven.bake(flow)
    gc.collect()
    assert model() is None
    assert plan.flow is flow


def test_without_an_oven_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_flow, "extensions", lambda _: ())
    flow = flour.from_onnx(scaled(*PLAIN))
    assert type(flow) is flour.Flow
