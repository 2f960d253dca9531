"""Types narrower than those of programs: float16, bfloat16, float8, float4, int4, int2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference.ops.op_cast import cast_to

from flour.core.errors import FlourError
from flour.onnx import NotNative, import_model
from flour.onnx.program import OnnxProgram
from flour.onnx.tensor import NARROW, carrier
from flour.onnx.tensors import DTYPES
from flour.ops.onnx_narrow import Exponent, LowBits, Rounded
from runtime import InferenceSession

KINDS = {name: kind for kind, name in DTYPES.items()}
FLOATS = [name for name in NARROW if carrier(name) == "float32" and name != "float8_e8m0fnu"]
WHOLE = ["int4", "uint4", "int2", "uint2"]


def bits_of(count: int) -> NDArray[np.float32]:
    """Floats of any bits at all."""
    rng = np.random.default_rng(count)
    return rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)


def around(name: str) -> NDArray[np.float32]:
    """Every number of a type, all that lie halfway between two, and their neighbours."""
    bits = 16 if "16" in name else 8
    every = np.arange(1 << bits).astype(f"uint{bits}")
    kind = np.dtype(np.float16 if name == "float16" else getattr(ml_dtypes, name))
    if name == "float4_e2m1fn":
        every = every[:16]
    values = every.view(kind).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    halfway = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    sides = [np.nextafter(halfway, np.float32(side)) for side in (-np.inf, np.inf)]
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 464, -464, 65520, 3.4e38], np.float32)
    return np.concatenate([values, halfway, *sides, odd, bits_of(5000)])


def assert_same(got: Any, want: Any) -> None:
    """The same numbers, the signs of zeros and where NaN is among them."""
    got, want = np.asarray(got, np.float32), np.asarray(want, np.float32)
    np.testing.assert_array_equal(got, want)
    zeros = want == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


def suited(x: Any, name: str, *how: Any) -> Any:
    """Numbers cast as ONNX's reference casts them."""
    with np.errstate(all="ignore"):
        return cast_to(x, KINDS[name], *how)  # type: ignore[arg-type]  # a number of that enum


def model(
    nodes: Sequence[Any], x: tuple[int, Any], y: tuple[int, Any], *constants: Any, opset: int = 23
) -> Any:
    """A model of one input x and one output y, of these types and shapes."""
    graph = helper.make_graph(
        nodes,
        "types",
        [helper.make_tensor_value_info("x", *x)],
        [helper.make_tensor_value_info("y", *y)],
        [numpy_helper.from_array(value, name) for name, value in constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def cast(source: int, target: int, **how: Any) -> Any:
    """A model that casts rows of one value."""
    node = helper.make_node("Cast", ["x"], ["y"], to=target, **how)
    return model([node], (source, [None]), (target, [None]), opset=25)


def answers(program: OnnxProgram, x: Any) -> tuple[Any, Any]:
    """What the definitions answer, and native code."""
    plan, data = program.flow.plan(), program.feed({"x": x})
    assert all(stage.native for stage in plan.stages)
    made = program.answer(program.flow.reference(data)), program.answer(plan.run(data))
    return made[0]["y"], made[1]["y"]


# --- rounding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("name", FLOATS)
def test_floats_round_as_the_suite_has_it(name: str, *, saturate: bool) -> None:
    x = around(name)
    want = suited(x, name, saturate)
    with np.errstate(all="ignore"):
        assert_same(Rounded(name, saturate).compute(x)[~np.isnan(x)], want[~np.isnan(x)])
    program = import_model(cast(1, KINDS[name], saturate=int(saturate)), native_only=True)
    for got in answers(program, x):
        assert got.dtype == want.dtype
        assert_same(got[~np.isnan(x)], want[~np.isnan(x)])
        if name != "float4_e2m1fn":
            assert np.isnan(got.astype(np.float32)[np.isnan(x)]).all()


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [True, False])
def test_exponents_alone(mode: str, *, saturate: bool) -> None:
    few = around("bfloat16")
    x = np.concatenate([few, few[np.isfinite(few) & (np.abs(few) < 2**10)] * np.float32(2.0**-130)])
    want = suited(x, "float8_e8m0fnu", saturate, mode)
    assert_same(Exponent(mode, saturate).compute(x), want)
    made = cast(1, TensorProto.FLOAT8E8M0, round_mode=mode, saturate=int(saturate))
    for got in answers(import_model(made, native_only=True), x):
        assert got.dtype == want.dtype
        assert_same(got, want)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_keep_their_lowest_bits(name: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, name))
    whole = np.arange(-300, 301)
    np.testing.assert_array_equal(
        LowBits(int(name[-1]), name[0] == "i").compute(whole), whole.astype(kind).astype(int)
    )
    x = np.concatenate([whole / 8, [1e9, -1e9]]).astype(np.float32)
    for got in answers(import_model(cast(1, KINDS[name]), native_only=True), x):
        np.testing.assert_array_equal(got, x.astype(np.int64).astype(kind))


def test_float64_becomes_float16_at_once() -> None:
    # By way of float32 this would be a tie, and go down to 1.
    x = np.array([1 + 2.0**-11 + 2.0**-40, 65519.9999999999, 2.0**-25 * (1 + 2.0**-40), -np.inf])
    program = import_model(cast(TensorProto.DOUBLE, TensorProto.FLOAT16), native_only=True)
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
    assert want[0] > 1
    for got in answers(program, x):
        np.testing.assert_array_equal(got, want)


def test_a_program_rounds_what_comes_in() -> None:
    program = import_model(cast(TensorProto.FLOAT16, TensorProto.FLOAT), native_only=True)
    x = np.array([0.1, 70000.0, np.nan, 1.0], np.float32)
    with np.errstate(over="ignore"):
        want = x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(program.flow.plan().run(x)["y"], want)


# --- arithmetic -----------------------------------------------------------------------------------

_TWO = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"]
_ONE = ["Neg", "Abs", "Sqrt", "Floor", "Ceil", "Round", "Reciprocal", "Identity"]


@pytest.mark.parametrize("op", [*_TWO, *_ONE])
def test_one_rounding_for_each_operator_as_in_onnxruntime(op: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(3)
    values = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    x = np.concatenate([rng.choice(values, 3000), np.array([0, -0.0, np.inf, np.nan], np.float16)])
    x = np.abs(x) if op == "Pow" else x
    names = ["x", "c"] if op in _TWO else ["x"]
    made = model(
        [helper.make_node(op, names, ["y"])],
        (TensorProto.FLOAT16, [None]),
        (TensorProto.FLOAT16, [None]),
        ("c", np.array([1.703], np.float16)),
        opset=21,
    )
    (want,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    for got in answers(import_model(made, native_only=True), x):
        assert got.dtype == np.float16
        assert_same(got, want)


def test_products_add_up_in_float32() -> None:
    rng = np.random.default_rng(5)
    x, w = (rng.normal(size=shape).astype(np.float16) for shape in ((40, 300), (300, 3)))
    ends = (TensorProto.FLOAT16, [None, 300]), (TensorProto.FLOAT16, [None, 3])
    made = model([helper.make_node("MatMul", ["x", "w"], ["y"])], *ends, ("w", w))
    want = x.astype(np.float64) @ w.astype(np.float64)
    for got in answers(import_model(made, native_only=True), x):
        assert got.dtype == np.float16
        # Half a unit in the last place, and what float32 loses.
        assert np.all(np.abs(got - want) <= np.abs(want) * 2.0**-11 + 1e-5)


def test_values_are_moved_about_without_arithmetic() -> None:
    x = np.array([[1.5, -2, np.inf, 448], [0.25, 0, -448, np.nan]], ml_dtypes.bfloat16)
    axis = ("axis", np.array([1]))
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 1]),
        helper.make_node("Concat", ["t", "x"], ["c"], axis=1),
        helper.make_node("Unsqueeze", ["c", "axis"], ["u"]),
        helper.make_node("Squeeze", ["u", "axis"], ["y"]),
    ]
    kind = TensorProto.BFLOAT16
    made = import_model(model(nodes, (kind, [None, 4]), (kind, [None, 8]), axis), native_only=True)
    for got in answers(made, x):
        assert got.dtype == x.dtype
        assert_same(got, np.concatenate([x, x], axis=1))
    assert [item.op.name for item in made.flow.nodes()].count("Rounded") == 1  # what comes in


def test_branches_answer_in_narrow_types() -> None:
    x = np.array([1.5, -2.0, 0.1], np.float16)
    shape = (TensorProto.FLOAT16, [3])
    sides = {
        name: helper.make_graph(
            [helper.make_node(op, ["x", "x"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, *shape)],
        )
        for name, op in (("then_branch", "Add"), ("else_branch", "Mul"))
    }
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "one"], ["test"]),
        helper.make_node("If", ["test"], ["y"], **sides),
    ]
    made = model(nodes, shape, shape, ("one", np.array(1, np.float16)))
    program = import_model(made, native_only=True)
    for values in (x, x / 4):
        want = values + values if values.max() > 1 else values * values
        for got in answers(program, values):
            assert got.dtype == np.float16
            np.testing.assert_array_equal(got, want)


# --- limits ---------------------------------------------------------------------------------------


def test_an_operator_that_onnx_does_not_define_for_a_type_is_refused() -> None:
    kind = TensorProto.INT4
    made = model([helper.make_node("Add", ["x", "x"], ["y"])], (kind, [None, 2]), (kind, [None, 2]))
    with pytest.raises(NotNative, match="native") as caught:
        import_model(made, native_only=True)
    assert "Add takes no int4" in str(caught.value.found)


def test_complex_numbers_have_no_place() -> None:
    kind = TensorProto.COMPLEX64
    made = model([helper.make_node("Identity", ["x"], ["y"])], (kind, [2]), (kind, [2]))
    with pytest.raises(NotNative):
        import_model(made, native_only=True)


def test_a_part_on_onnxruntime_takes_the_casts_in_front_of_it() -> None:
    ort = pytest.importorskip("onnxruntime")
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Cast", ["e"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("Unsqueeze", ["h", "axis"], ["u"]),
        helper.make_node("GlobalMaxPool", ["u"], ["p"]),
        helper.make_node("Squeeze", ["p", "axis"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    ends = (TensorProto.FLOAT, [None, 4]), (TensorProto.FLOAT, [None, 4])
    made = model(nodes, *ends, ("axis", np.array([2])), opset=21)
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    (want,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    program = import_model(made)
    names = [item.op.name for item in program.flow.nodes()]
    assert "Exp" in names
    assert "Opaque" in names
    got = program.answer(program.flow.plan().run(program.feed({"x": x})))["y"]
    np.testing.assert_allclose(got, want, rtol=2**-10)


def test_a_model_with_narrow_inputs_of_such_a_part_runs_whole() -> None:
    ort = pytest.importorskip("onnxruntime")
    shape = (TensorProto.FLOAT16, [None, 2, 5])
    made = model([helper.make_node("GlobalMaxPool", ["x"], ["y"])], shape, shape, opset=21)
    x = np.random.default_rng(0).normal(size=(3, 2, 5)).astype(np.float16)
    session = InferenceSession(made.SerializeToString())
    (want,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    (got,) = session.run(None, {"x": x})
    assert got.dtype == want.dtype == np.float16
    np.testing.assert_array_equal(got, want)


# --- sessions -------------------------------------------------------------------------------------


def test_sessions_take_and_give_arrays_of_the_models_types() -> None:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["s"]),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.BFLOAT16),
    ]
    ends = (TensorProto.FLOAT16, [None, 2]), (TensorProto.BFLOAT16, [None, 2])
    made = model(nodes, *ends, ("c", np.array([0.1, 2], np.float16)))
    session = InferenceSession(made, native_only=True)
    assert [item.type for item in session.get_inputs()] == ["tensor(float16)"]
    assert [item.type for item in session.get_outputs()] == ["tensor(bfloat16)"]
    x = np.array([[1, 2], [3, 4]], np.float16)
    want = (x + np.array([0.1, 2], np.float16)).astype(ml_dtypes.bfloat16)
    for given in (x, x.tolist()):
        (got,) = session.run(None, {"x": given})
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    with pytest.raises(FlourError, match="dtype"):
        session.run(None, {"x": x.astype(np.float32)})


def test_sessions_leave_narrow_arrays_to_onnxruntime() -> None:
    ort = pytest.importorskip("onnxruntime")
    nodes = [
        helper.make_node("Add", ["x", "c"], ["s"]),
        helper.make_node("Mul", ["s", "c"], ["y"]),
    ]
    ends = (TensorProto.FLOAT16, [None, 2]), (TensorProto.FLOAT16, [None, 2])
    made = model(nodes, *ends, ("c", np.array([0.1, 1.7], np.float16)), opset=21)
    x = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float16)
    (want,) = ort.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    black, white = (InferenceSession(made, native_only=native) for native in (False, True))
    np.testing.assert_array_equal(black.run(None, {"x": x})[0], want)
    assert not all(stage.native for stage in black.plan.stages)
    assert all(stage.native for stage in white.plan.stages)
    (got,) = white.run(None, {"x": x})
    np.testing.assert_allclose(got, want, rtol=2**-9, atol=2**-13)


def test_narrow_constants_are_read_from_every_place() -> None:
    value = numpy_helper.from_array(np.array([0.1, 3e-8], np.float16))
    nodes = [
        helper.make_node("Constant", [], ["k"], value=value),
        helper.make_node("Add", ["k", "c"], ["m"]),
        helper.make_node("Add", ["x", "m"], ["y"]),
    ]
    ends = (TensorProto.FLOAT16, [None, 2]), (TensorProto.FLOAT16, [None, 2])
    made = model(nodes, *ends, ("c", np.array([1, 6e-8], np.float16)))
    onnx.checker.check_model(made)
    x = np.zeros((1, 2), np.float16)
    want = np.array([[0.1, 3e-8]], np.float16) + np.array([1, 6e-8], np.float16)
    for got in answers(import_model(made, native_only=True), x):
        np.testing.assert_array_equal(got, want)


# --- strings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "known"),
    [([2], None), ([2], ["b", "long words of Łódź"]), ([1], ["b"]), ([1], None)],
)
def test_strings_are_equal_character_by_character(
    shape: list[int], known: list[str] | None
) -> None:
    kind, texts = TensorProto.STRING, ["b", "a", "", "long words of Łódź", "long words of Łód"]
    rng = np.random.default_rng(7)
    node = helper.make_node("Equal", ["x", "k" if known else "z"], ["y"])
    made = model([node], (kind, [None, 2]), (TensorProto.BOOL, [None, 2]))
    if known:
        made.graph.initializer.append(numpy_helper.from_array(np.array(known, object), "k"))
    else:
        made.graph.input.append(helper.make_tensor_value_info("z", kind, [None, *shape]))
    program = import_model(made, native_only=True)
    feed = {
        name: rng.choice(np.array(texts, object), (40, width))
        for name, width in (("x", 2), ("z", shape[0]))
    }
    want = feed["x"] == (np.array(known, object) if known else feed["z"])
    assert 0 < want.sum() < want.size
    plan, data = program.flow.plan(), program.feed(feed)
    assert all(stage.native for stage in plan.stages)
    for columns in (program.flow.reference(data), plan.run(data)):
        np.testing.assert_array_equal(program.answer(columns)["y"], want)
