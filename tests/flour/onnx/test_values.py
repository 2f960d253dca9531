"""Odd numbers through every function of numbers, against onnxruntime: NaN, infinities, ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import oven
from flour.onnx import import_model

FLOATS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3e38, 1e-40]
#: Beyond this, functions of the C library and of onnxruntime differ in the last bits.
CLOSE = 2e-6
UNARY = (
    *("Abs", "Ceil", "Floor", "Neg", "Sign", "Relu", "Round", "IsNaN", "IsInf", "Identity"),
    *("Exp", "Log", "Sqrt", "Sin", "Cos", "Tan", "Tanh", "Sigmoid", "Erf", "Reciprocal"),
    *("Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh", "Sinh", "Cosh"),
)
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "LessOrEqual", "Equal", "Greater")


def runs(nodes: list[Any], feed: dict[str, Any], constants: dict[str, Any], opset: int) -> Any:
    """(names, ours by definition, ours compiled, onnxruntime's) for one model."""
    names = [name for node in nodes for name in node.output]
    graph = helper.make_graph(
        nodes,
        "values",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), ["n", *value.shape[1:]]
            )
            for name, value in feed.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in names],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    data = made.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    program = import_model(data, native_only=True)
    columns = program.feed(feed)
    defined = program.answer(program.flow.reference(columns))
    compiled = program.answer(oven.bake(program.flow).run(columns))
    return names, defined, compiled, dict(zip(names, session.run(names, feed), strict=True))


def compare(nodes: list[Any], feed: dict[str, Any], constants: Any = (), opset: int = 18) -> None:
    """Both ways of ours answer as onnxruntime does."""
    names, defined, compiled, want = runs(nodes, feed, dict(constants), opset)
    for got in (defined, compiled):
        for name in names:
            assert got[name].dtype == want[name].dtype, name
            np.testing.assert_allclose(got[name], want[name], CLOSE, 1e-7, err_msg=name)


def odd(dtype: str) -> Any:
    """Every odd number against every other, in two columns."""
    with np.errstate(over="ignore"):
        values = np.array(FLOATS).astype(dtype)
    return np.stack(np.meshgrid(values, values), axis=-1).reshape(-1, 2)


def test_functions_of_one_number() -> None:
    x = np.array(FLOATS, np.float32).reshape(-1, 1)
    nodes = [helper.make_node(name, ["x"], [name]) for name in UNARY]
    compare(nodes, {"x": x})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [2, 3, 0.5])
def test_powers_that_are_known(dtype: str, exponent: float) -> None:
    powers = {"alone": np.full((), exponent, dtype), "row": np.full((1, 1), exponent, dtype)}
    nodes = [helper.make_node("Pow", ["x", name], [f"by {name}"]) for name in powers]
    compare(nodes, {"x": np.array(FLOATS, dtype).reshape(-1, 2)}, powers)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_two_numbers(dtype: str) -> None:
    pairs = odd(dtype)
    nodes = [helper.make_node(name, ["x", "y"], [name]) for name in BINARY]
    nodes.append(helper.make_node("Mod", ["x", "y"], ["Mod"], fmod=1))
    nodes.append(helper.make_node("Clip", ["x", "low", "high"], ["Clip"]))
    limits = {"low": np.array(-1, dtype), "high": np.array(1, dtype)}
    compare(nodes, {"x": pairs[:, :1], "y": pairs[:, 1:]}, limits)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_whole_numbers(dtype: str) -> None:
    limits = np.iinfo(dtype)
    values = [0, 1, 2, 3, 7, limits.max, limits.max - 1] + ([-1, -2, -7] if limits.min else [])
    pairs = np.array([(a, b) for a in values for b in values if b not in (0, -1)], dtype)
    names = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "Equal")
    nodes = [helper.make_node(name, ["x", "y"], [name]) for name in names]
    nodes.append(helper.make_node("Mod", ["x", "y"], ["Mod"]))
    if dtype != "int64":  # onnxruntime goes through float64 there, and rounds
        nodes.append(helper.make_node("Mod", ["x", "y"], ["Fmod"], fmod=1))
    compare(nodes, {"x": pairs[:, :1], "y": pairs[:, 1:]})


def test_what_is_found_among_odd_numbers() -> None:
    rng = np.random.default_rng(3)
    x = rng.choice(np.array([np.inf, -np.inf, 0, 1, 1, -1, 2], np.float32), size=(200, 5))
    nodes = [
        helper.make_node("ArgMax", ["x"], ["first"], axis=1),
        helper.make_node("ArgMax", ["x"], ["last"], axis=1, select_last_index=1),
        helper.make_node("ArgMin", ["x"], ["least"], axis=1, keepdims=0),
        helper.make_node("TopK", ["x", "k"], ["top", "where"], axis=1),
        helper.make_node("TopK", ["x", "k"], ["low", "there"], axis=1, largest=0),
        helper.make_node("ReduceMax", ["x", "axis"], ["largest"]),
        helper.make_node("ReduceMin", ["x", "axis"], ["smallest"], keepdims=0),
        helper.make_node("ReduceLogSumExp", ["x", "axis"], ["logs"]),
    ]
    compare(nodes, {"x": x}, {"k": np.array([3]), "axis": np.array([1])})


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_found_among_numbers_that_are_none(dtype: str, last: int) -> None:
    rng = np.random.default_rng(4)
    x = rng.choice(np.array([np.nan, np.inf, -np.inf, 1, 2], dtype), size=(300, 4))
    how: dict[str, Any] = {"select_last_index": last}
    nodes = [
        helper.make_node("ArgMax", ["x"], ["most"], axis=1, keepdims=0, **how),
        helper.make_node("ArgMin", ["x"], ["least"], axis=1, **how),
        helper.make_node("Reshape", ["x", "shape"], ["pairs"]),
        helper.make_node("ArgMax", ["pairs"], ["of two"], axis=2, **how),
        helper.make_node("ArgMin", ["pairs"], ["across"], axis=1, **how),
    ]
    compare(nodes, {"x": x}, {"shape": np.array([-1, 2, 2])})


def test_casts() -> None:
    x = np.array([[0.0], [-0.4], [1.5], [-1.5], [2.5], [100.9], [np.nan]], np.float32)
    kinds = {"bool": 9, "float64": 11}
    nodes = [helper.make_node("Cast", ["x"], [name], to=kind) for name, kind in kinds.items()]
    compare(nodes, {"x": x})
    whole = {"int8": 3, "int32": 6, "int64": 7, "uint8": 2}
    nodes = [helper.make_node("Cast", ["x"], [name], to=kind) for name, kind in whole.items()]
    compare(nodes, {"x": np.abs(x[:-1])})


def test_numbers_stay_as_wide_as_the_model_says() -> None:
    nodes = [helper.make_node("Add", ["x", "c"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "narrow",
        [helper.make_tensor_value_info("x", 1, ["n", 1])],
        [helper.make_tensor_value_info("y", 1, ["n", 1])],
        [numpy_helper.from_array(np.array([1e-9], np.float32), "c")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    answer = oven.bake(import_model(model).flow).run(np.array([[1.0]]))["y"]
    assert answer.dtype == np.float32
    assert answer.tolist() == [[1.0]]
