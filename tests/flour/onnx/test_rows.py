"""Models whose first dimension is open, against onnxruntime: every row alone, and many at once.

What is easily wrong is where the rows' axis goes, so shapes, axes and orders are drawn at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import oven
from flour.onnx import NotNative, import_model

KINDS = {"float32": 1, "int64": 7, "int32": 6, "bool": 9, "float64": 11, "uint8": 2}
RNG = np.random.default_rng(7)


def model(
    nodes: Sequence[Any],
    inputs: Mapping[str, tuple[str, Sequence[Any]]],
    constants: dict[str, Any],
    *outputs: str,
    opset: int = 18,
) -> bytes:
    """A model as bytes; the types of outputs are inferred by who runs it."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, KINDS[d], list(s)) for n, (d, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return bytes(made.SerializeToString())


def check(data: bytes, feed: dict[str, Any], *, tolerance: float = 1e-6) -> None:
    """Our answer for all rows, compiled or by definition, is onnxruntime's, in shape and dtype."""
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    program = import_model(data, native_only=True)
    got = program.answer(program.flow.reference(program.feed(feed)))
    for item, want in zip(session.get_outputs(), session.run(None, feed), strict=True):
        assert (got[item.name].shape, got[item.name].dtype) == (want.shape, want.dtype), item.name
        if want.dtype.kind == "f":
            np.testing.assert_allclose(got[item.name], want, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(got[item.name], want)


def numbers(*shape: int, dtype: str = "float32") -> Any:
    """Random numbers of a shape."""
    if dtype == "bool":
        return RNG.random(shape) < 0.5
    if dtype.startswith("float"):
        return RNG.normal(size=shape).astype(dtype)
    return RNG.integers(0, 9, size=shape).astype(dtype)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=3)
counts = st.sampled_from([1, 2, 5])


@settings(max_examples=30, deadline=None)
@given(shape=shapes, rows=counts, data=st.data())
def test_transposed_and_back_with_something_between(shape: Any, rows: int, data: Any) -> None:
    rank = len(shape) + 1
    order = data.draw(st.permutations(range(rank)))
    where = order.index(0)
    others = [axis for axis in range(rank) if axis != where]
    axis = data.draw(st.sampled_from(others))
    kind = data.draw(st.sampled_from(["ReduceSum", "ReduceMax", "Softmax", "ArgMax", "CumSum"]))
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=order)]
    constants: dict[str, Any] = {}
    if kind in ("ReduceSum", "CumSum"):
        constants["axis"] = np.array([axis] if kind == "ReduceSum" else axis, np.int64)
        nodes.append(helper.make_node(kind, ["t", "axis"], ["y"]))
    elif kind == "ReduceMax":
        constants["axis"] = np.array([axis], np.int64)
        keep = data.draw(st.booleans())
        nodes.append(helper.make_node(kind, ["t", "axis"], ["y"], keepdims=int(keep)))
    elif kind == "ArgMax":
        keep = data.draw(st.booleans())
        nodes.append(helper.make_node(kind, ["t"], ["y"], axis=axis, keepdims=int(keep)))
    else:
        nodes.append(helper.make_node(kind, ["t"], ["y"], axis=axis))
    made = model(nodes, {"x": ("float32", ["n", *shape])}, constants, "y")
    check(made, {"x": numbers(rows, *shape)}, tolerance=1e-5)


@settings(max_examples=30, deadline=None)
@given(shape=shapes, rows=counts, data=st.data())
def test_broadcast_against_constants_and_rows(shape: Any, rows: int, data: Any) -> None:
    op = data.draw(st.sampled_from(["Add", "Mul", "Div", "Sub", "Pow", "Less", "Equal", "Min"]))
    dims = [data.draw(st.sampled_from([1, n])) for n in shape][data.draw(st.integers(0, 3)) :]
    other = numbers(*dims)
    dtype = "int64" if op != "Pow" and data.draw(st.booleans()) else "float32"
    given_ = (np.abs(numbers(*dims)) + 1).astype(dtype) if dtype == "int64" else np.abs(other)
    swapped = data.draw(st.booleans())
    names = ["c", "x"] if swapped else ["x", "c"]
    narrow = [data.draw(st.sampled_from([1, n])) for n in shape]
    nodes = [helper.make_node(op, names, ["a"]), helper.make_node("Where", ["m", "x", "z"], ["b"])]
    inputs = {
        "x": (dtype, ["n", *shape]),
        "z": (dtype, ["n", *narrow]),
        "m": ("bool", ["n", *narrow]),
    }
    made = model(nodes, inputs, {"c": given_}, "a", "b")
    feed = {name: numbers(rows, *s[1:], dtype=d) for name, (d, s) in inputs.items()}
    feed["x"] = np.abs(feed["x"]) + np.ones(1, dtype)
    check(made, feed, tolerance=1e-5)


@settings(max_examples=30, deadline=None)
@given(shape=st.lists(st.integers(1, 4), min_size=2, max_size=3), rows=counts, data=st.data())
def test_picked_by_known_indices(shape: Any, rows: int, data: Any) -> None:
    rank = len(shape) + 1
    axis = data.draw(st.integers(1, rank - 1))
    size = shape[axis - 1]
    places = data.draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=4))
    start, stop = data.draw(st.integers(-6, 6)), data.draw(st.integers(-6, 6))
    step = data.draw(st.sampled_from([1, 2, -1, -2]))
    constants = {
        "places": np.array(places).reshape(data.draw(st.sampled_from([(-1,), (1, -1)]))),
        "start": np.array([start]),
        "stop": np.array([stop]),
        "axis": np.array([axis - rank]),
        "step": np.array([step]),
    }
    nodes = [
        helper.make_node("Gather", ["x", "places"], ["g"], axis=axis),
        helper.make_node("Slice", ["x", "start", "stop", "axis", "step"], ["s"]),
        helper.make_node("Concat", ["x", "x", "s"], ["c"], axis=axis),
    ]
    made = model(nodes, {"x": ("int32", ["n", *shape])}, constants, "g", "s", "c")
    check(made, {"x": numbers(rows, *shape, dtype="int32")})


@settings(max_examples=30, deadline=None)
@given(shape=st.lists(st.integers(1, 3), min_size=2, max_size=3), rows=counts, data=st.data())
def test_picked_by_computed_indices(shape: Any, rows: int, data: Any) -> None:
    axis = data.draw(st.integers(1, len(shape)))
    size = shape[axis - 1]
    wide = [
        n if place != axis - 1 else data.draw(st.integers(1, 3)) for place, n in enumerate(shape)
    ]
    table = numbers(size, 2)
    inputs = {"x": ("float32", ["n", *shape]), "i": ("int64", ["n", *wide])}
    nodes = [
        helper.make_node("GatherElements", ["x", "i"], ["e"], axis=axis),
        helper.make_node("Gather", ["table", "i"], ["t"]),
        helper.make_node("TopK", ["x", "k"], ["v", "p"], axis=axis),
        helper.make_node("OneHot", ["i", "depth", "values"], ["h"], axis=axis),
    ]
    constants = {
        "table": table,
        "k": np.array([data.draw(st.integers(1, size))]),
        "depth": np.array(size),
        "values": np.array([0, 1], np.float32),
    }
    made = model(nodes, inputs, constants, "e", "t", "v", "p", "h")
    places = RNG.integers(-size, size, size=(rows, *wide))
    check(made, {"x": numbers(rows, *shape), "i": places})


@settings(max_examples=30, deadline=None)
@given(rows=counts, m=st.integers(1, 3), k=st.integers(1, 4), n=st.integers(1, 3))
def test_products(rows: int, m: int, k: int, n: int) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["x", "y"], ["b"]),
        helper.make_node("Einsum", ["x", "w"], ["c"], equation="bmk,kn->nbm"),
        helper.make_node("Einsum", ["x", "y"], ["d"], equation="bmk,bkn->bn"),
        helper.make_node("Flatten", ["x"], ["f"]),
        helper.make_node("Gemm", ["f", "g", "v"], ["e"], alpha=0.5, beta=2.0, transB=1),
        helper.make_node("Transpose", ["f"], ["ft"], perm=[1, 0]),
        helper.make_node("MatMul", ["g", "ft"], ["h"]),
        helper.make_node("MatMul", ["v1", "ft"], ["i"]),
    ]
    constants = {"w": numbers(k, n), "g": numbers(2, m * k), "v": numbers(2), "v1": numbers(m * k)}
    inputs = {"x": ("float32", ["r", m, k]), "y": ("float32", ["r", k, n])}
    made = model(nodes, inputs, constants, *"abcdehi")
    check(made, {"x": numbers(rows, m, k), "y": numbers(rows, k, n)}, tolerance=1e-5)


@settings(max_examples=30, deadline=None)
@given(rows=counts, a=st.integers(1, 3), b=st.integers(1, 4))
def test_shapes_worked_out_from_the_number_of_rows(rows: int, a: int, b: int) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "zeros"], ["n1"]),
        helper.make_node("Concat", ["n1", "minus"], ["two"], axis=0),
        helper.make_node("Reshape", ["x", "two"], ["flat"]),
        helper.make_node("Concat", ["n1", "five"], ["wide"], axis=0),
        helper.make_node("ConstantOfShape", ["wide"], ["ones"], value=_tensor([1.5])),
        helper.make_node("Concat", ["flat", "ones"], ["all"], axis=1),
        helper.make_node("Reshape", ["all", "minus"], ["line"]),
        helper.make_node("Mul", ["line", "half"], ["halves"]),
        helper.make_node("Reshape", ["halves", "back"], ["again"]),
        helper.make_node("Mul", ["n1", "nine"], ["times"]),
        helper.make_node("Equal", ["wide", "minus"], ["unknown"]),
        helper.make_node("Where", ["unknown", "five", "wide"], ["target"]),
        helper.make_node("Expand", ["half1", "target"], ["spread"]),
        helper.make_node("Squeeze", ["column", "ones_"], ["scalar"]),
        helper.make_node("Slice", ["x", "zeros", "one", "ones_"], ["column3"]),
        helper.make_node("Slice", ["column3", "zeros", "one", "twos"], ["column2"]),
        helper.make_node("Squeeze", ["column2", "twos"], ["column"]),
    ]
    width = a * b + 5
    constants = {
        "zero": np.array(0),
        "zeros": np.array([0]),
        "one": np.array([1]),
        "ones_": np.array([1]),
        "twos": np.array([2]),
        "minus": np.array([-1]),
        "five": np.array([5]),
        "nine": np.array([9]),
        "half": np.array(0.5, np.float32),
        "half1": np.array([[0.5]], np.float32),
        "back": np.array([-1, width]),
    }
    made = model(
        nodes,
        {"x": ("float32", ["n", a, b])},
        constants,
        *("all", "line", "again", "spread", "scalar"),
    )
    check(made, {"x": numbers(rows, a, b)})


@settings(max_examples=20, deadline=None)
@given(rows=counts, trees=st.integers(1, 4))
def test_trees_walked_as_tensors(rows: int, trees: int) -> None:
    nodes = [
        helper.make_node("Gather", ["x", "features"], ["f"], axis=1),
        helper.make_node("Less", ["f", "limits"], ["left"]),
        helper.make_node("Cast", ["left"], ["l"], to=TensorProto.INT64),
        helper.make_node("Add", ["l", "starts"], ["at"]),
        helper.make_node("Reshape", ["at", "line"], ["flat"]),
        helper.make_node("Gather", ["table", "flat"], ["next"], axis=0),
        helper.make_node("Gather", ["wide", "next"], ["pair"], axis=0),
        helper.make_node("Reshape", ["next", "square"], ["y"]),
    ]
    constants = {
        "features": RNG.integers(0, 3, trees),
        "limits": numbers(trees),
        "starts": np.arange(trees) * 2,
        "line": np.array([-1]),
        "square": np.array([-1, trees]),
        "table": RNG.integers(0, 2 * trees, 2 * trees),
        "wide": numbers(2 * trees, 2),
    }
    made = model(nodes, {"x": ("float32", ["n", 3])}, constants, "y", "pair", "next")
    check(made, {"x": numbers(rows, 3)})


def _tensor(values: Any) -> Any:
    return helper.make_tensor("value", TensorProto.FLOAT, [len(values)], values)


@pytest.mark.parametrize(
    ("node", "constants"),
    [
        (helper.make_node("ReduceSum", ["x", "c"], ["y"]), {"c": np.array([0])}),
        (helper.make_node("Softmax", ["x"], ["y"], axis=0), {}),
        (helper.make_node("Gather", ["x", "c"], ["y"], axis=0), {"c": np.array([0])}),
        (helper.make_node("Reshape", ["x", "c"], ["y"]), {"c": np.array([-1, 8])}),
        (helper.make_node("Reshape", ["x", "c"], ["y"]), {"c": np.array([4, -1])}),
        (helper.make_node("Concat", ["x", "x"], ["y"], axis=0), {}),
        (helper.make_node("Concat", ["x", "c"], ["y"], axis=1), {"c": numbers(1, 2)}),
        (helper.make_node("Add", ["x", "c"], ["y"]), {"c": numbers(3, 4)}),
        (helper.make_node("Slice", ["x", "c", "d"], ["y"]), {"c": np.array([1]), "d": [9]}),
        (helper.make_node("MatMul", ["c", "x"], ["y"]), {"c": numbers(2, 3)}),
        (helper.make_node("Tile", ["x", "c"], ["y"]), {"c": np.array([2, 1])}),
        (helper.make_node("Expand", ["x", "c"], ["y"]), {"c": np.array([3, 4])}),
        (helper.make_node("CumSum", ["x", "c"], ["y"]), {"c": np.array(0)}),
        (helper.make_node("Einsum", ["x", "x"], ["y"], equation="ab,cb->ac"), {}),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)
def test_what_mixes_rows_is_refused(node: Any, constants: dict[str, Any]) -> None:
    made = model([node], {"x": ("float32", ["n", 4])}, constants, "y")
    with pytest.raises(NotNative) as refused:
        import_model(made, native_only=True)
    assert node.op_type in str(refused.value)


def test_a_fixed_first_dimension_is_the_rows_on_demand() -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    made = model(nodes, {"x": ("float32", [1, 4])}, {}, "y")
    x = numbers(6, 4)
    program = import_model(made, rows=True)
    got = program.answer(program.flow.reference(program.feed({"x": x})))["y"]
    want = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_compiled_code_answers_the_same() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[2, 0, 1]),
        helper.make_node("ReduceLogSumExp", ["t", "axis"], ["l"], keepdims=0),
        helper.make_node("Mod", ["i", "three"], ["m"]),
        helper.make_node("Div", ["i", "three"], ["q"]),
        helper.make_node("TopK", ["x", "k"], ["v", "p"]),
    ]
    inputs = {"x": ("float32", ["n", 3, 5]), "i": ("int64", ["n", 2])}
    constants = {"axis": np.array([0]), "three": np.array([-3]), "k": np.array([2])}
    made = model(nodes, inputs, constants, "l", "m", "q", "v", "p")
    program = import_model(made, native_only=True)
    data = program.feed({"x": numbers(40, 3, 5), "i": RNG.integers(-9, 9, size=(40, 2))})
    plan = oven.bake(program.flow)
    assert all(stage.native for stage in plan.program.stages)
    native, defined = plan.run(data), program.flow.reference(data)
    for name, want in defined.items():
        np.testing.assert_allclose(native[name], want, rtol=1e-5, atol=1e-6)


@given(
    blocks=st.integers(1, 4), width=st.integers(1, 3), rows=st.integers(1, 5), turned=st.booleans()
)
@settings(max_examples=25, deadline=None)
def test_blocks_of_all_rows_that_a_reshape_sorts_out(
    blocks: int, width: int, rows: int, *, turned: bool
) -> None:
    names = [f"b{number}" for number in range(blocks)]
    nodes = [helper.make_node("Mul", ["x", f"w{n}"], [n]) for n in names]
    nodes.append(helper.make_node("Concat", names, ["all"], axis=0))
    nodes.append(helper.make_node("Reshape", ["all", "shape"], ["sorted"]))
    nodes.append(helper.make_node("Transpose", ["sorted"], ["y"], perm=[1, 2, 0]))
    constants: dict[str, Any] = {f"w{name}": numbers(width) for name in names}
    constants["shape"] = np.array([blocks, -1, width])
    answer = "y" if turned else "sorted"
    data = model(nodes, {"x": ("float32", ["N", width])}, constants, answer)
    check(data, {"x": numbers(rows, width)})


@pytest.mark.parametrize("wanted", [[-1, 4], [0, 2], [3, -1]])
def test_blocks_of_all_rows_that_stay_taken_apart_are_not_native(wanted: list[int]) -> None:
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["all"], axis=0),
        helper.make_node("Reshape", ["all", "shape"], ["y"]),
    ]
    data = model(nodes, {"x": ("float32", ["N", 2])}, {"shape": np.array(wanted)}, "y")
    with pytest.raises(NotNative):
        import_model(data, native_only=True)
    bare = model(nodes[:1], {"x": ("float32", ["N", 2])}, {}, "all")
    with pytest.raises(NotNative, match="no native code"):
        import_model(bare, native_only=True)


@pytest.mark.parametrize("value", [[1.5], [1.5, -2.0]])
def test_what_is_repeated_as_often_as_there_are_rows(value: list[float]) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["full"]),
        helper.make_node("Slice", ["full", "zero", "one"], ["rows"]),
        helper.make_node("Tile", ["value", "rows"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "one": np.array([1]), "value": np.array(value, np.float32)}
    data = model(nodes, {"x": ("float32", ["N", 2])}, constants, "y")
    check(data, {"x": numbers(5, 2)})
