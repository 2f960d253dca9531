"""Plans that are one part of a model: arrays go to onnxruntime as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import FlourError
from flour.onnx import import_model
from flour.ops.opaque import Opaque
from oven import Plan
from runtime import Runtime
from tests.onnx_parts import FLOAT, STRING, black_in_the_middle, model, node, theirs_by_name

ROWS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def two_of_each() -> Any:
    """Two inputs, two answers."""
    return model(
        [
            node("Add", ["a", "b"], ["sum"]),
            node("DynamicQuantizeLinear", ["sum"], ["q", "scale", "zero"]),
            node("DequantizeLinear", ["q", "scale", "zero"], ["about"]),
            node("Mul", ["about", "a"], ["y"]),
            node("ReduceSum", ["about", "axis"], ["z"], keepdims=0),
        ],
        [("a", FLOAT, ["N", 4]), ("b", FLOAT, ["N", 4])],
        [("y", FLOAT, ["N", 4]), ("z", FLOAT, ["N"])],
        {"axis": np.array([1])},
    )


def refused(*_: object) -> Any:
    """Stands where the long way begins."""
    raise AssertionError("this goes in by the entry")


@pytest.mark.rules
def test_arithmetic_around_a_part_goes_with_it() -> None:
    made = black_in_the_middle()
    apart, plan = oven.bake(import_model(made).flow), oven.bake(flour.from_onnx(made))
    assert [stage.kind for stage in apart.program.stages].count("python") < len(
        apart.program.stages
    )
    assert [stage.kind for stage in plan.program.stages] == ["python"]
    assert plan.mixes_rows
    want = theirs_by_name(made, x=ROWS)["y"]
    for data in (ROWS, {"x": ROWS}, ROWS.tolist(), np.asfortranarray(ROWS)):
        np.testing.assert_allclose(plan.run(data)["y"], want, rtol=1e-6)
    np.testing.assert_allclose(apart.run(ROWS)["y"], want, atol=1e-4)


@pytest.mark.rules
def test_arrays_are_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = oven.bake(flour.from_onnx(black_in_the_middle()))
    want = plan.run(ROWS)["y"]
    monkeypatch.setattr(Plan, "answer", refused)
    call = plan.entry()
    for data in (ROWS, {"x": ROWS}):
        (found,) = call(data)
        np.testing.assert_array_equal(found, want)


def test_what_is_no_such_array_goes_the_long_way() -> None:
    plan = oven.bake(flour.from_onnx(black_in_the_middle()))
    call = plan.entry()
    one = plan.run(ROWS[:1])["y"]
    np.testing.assert_array_equal(call(ROWS[0])[0], one[0])
    np.testing.assert_array_equal(call(ROWS[0].tolist())[0], one[0])
    assert call(ROWS[:0])[0].shape == (0, 300)
    wide = np.zeros((2, 5), np.float32)
    for bad in (wide, {"x": wide}, {"y": ROWS}, np.zeros((2, 2, 4), np.float32), "text"):
        with pytest.raises(FlourError):
            call(bad)


def test_several_arrays_and_answers() -> None:
    made = two_of_each()
    plan = oven.bake(flour.from_onnx(made))
    assert (
        len([item.op for item in plan.program.optimised.nodes() if isinstance(item.op, Opaque)])
        == 1
    )
    feed = {"a": ROWS, "b": ROWS[::-1].copy()}
    want = theirs_by_name(made, **feed)
    for found in (plan.run(feed), dict(zip(plan.outputs, plan.entry()(feed), strict=True))):
        assert {name: value.shape for name, value in found.items()} == {"y": (6, 4), "z": (6,)}
        for name, value in found.items():
            np.testing.assert_allclose(value, want[name], rtol=1e-6)
    with pytest.raises(FlourError):
        plan.run({"a": ROWS, "b": ROWS[:2]})
    with pytest.raises(FlourError):
        plan.run({"a": ROWS})


def test_rows_that_stay_apart_are_not_brought_together() -> None:
    """A part that is known to look at rows one by one stays alone: a product is not known to."""
    made = model(
        [
            node("RegexFullMatch", ["s"], ["known"], pattern="[0-9]*"),
            node("Cast", ["known"], ["one"], to=FLOAT),
            node("MatMul", ["x", "w"], ["a"]),
            node("Mul", ["a", "one"], ["y"]),
        ],
        [("x", FLOAT, ["N", 4]), ("s", STRING, ["N", 1])],
        [("y", FLOAT, ["N", 1])],
        {"w": np.ones((4, 1), np.float32)},
        opset=20,
    )
    plan = oven.bake(flour.from_onnx(made))
    assert not plan.mixes_rows
    assert len(plan.program.stages) > 1
    feed = {"x": ROWS[:2], "s": np.array([["12"], ["a"]], object)}
    np.testing.assert_allclose(plan.run(feed)["y"], theirs_by_name(made, **feed)["y"], rtol=1e-6)


def test_a_runtime_serves_them() -> None:
    made = black_in_the_middle()
    with Runtime() as runtime:
        runtime.register("model", flour.from_onnx(made))
        for rows in (1, 6):
            want = theirs_by_name(made, x=ROWS[:rows])["y"]
            for _ in range(80):
                found = runtime.predict("model", {"x": ROWS[:rows]})["y"]
            np.testing.assert_allclose(found, want, rtol=1e-6)
