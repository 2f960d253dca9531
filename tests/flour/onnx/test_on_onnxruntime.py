"""Operators of neural networks: onnxruntime runs them inside the plan, and its answers are ours."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import flour
import oven
from flour.core.errors import FlourError
from flour.onnx import NotNative, import_model
from runtime import InferenceSession
from tests.onnx_parts import FLOAT, INT64, STRING, Port, model, node, session, theirs

RNG = np.random.default_rng(3)
ODD = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-40, 0.5, -0.5, 2.5, -2.5]
ROWS = np.concatenate([np.resize(ODD, (12, 4)), RNG.normal(size=(9, 4))]).astype(np.float32)
WORDS = np.array([["a b", "x@y.de"], ["", "ab"], ["é é", "日本"]], object)
X: list[Port] = [("x", FLOAT, ["N", 4])]
Y: list[Port] = [("y", FLOAT, None)]


def body(nodes: list[Any], reads: dict[str, int], leaves: dict[str, int]) -> Any:
    """A graph inside a node; a name that ends in `s` is a list."""

    def port(name: str, kind: int) -> Any:
        if name.endswith("s"):
            return helper.make_tensor_sequence_value_info(name, kind, None)
        return helper.make_tensor_value_info(name, kind, [] if kind != FLOAT else None)

    first, last = ([port(*item) for item in names.items()] for names in (reads, leaves))
    return helper.make_graph(nodes, "body", first, last)


_LOOP = body(
    [node("Identity", ["on"], ["go"]), node("Mul", ["z", "half"], ["w"])],
    {"i": INT64, "on": TensorProto.BOOL, "z": FLOAT},
    {"go": TensorProto.BOOL, "w": FLOAT},
)
_COLLECT = body(
    [node("Identity", ["on"], ["go"]), node("SequenceInsert", ["befores", "x"], ["afters"])],
    {"i": INT64, "on": TensorProto.BOOL, "befores": FLOAT},
    {"go": TensorProto.BOOL, "afters": FLOAT},
)
_MAP = body([node("Neg", ["v"], ["w"])], {"v": FLOAT}, {"w": FLOAT})
_SHORT = [node("SequenceConstruct", ["x", "x"], ["s"])]
CONSTANTS: dict[str, Any] = {
    "four": np.array([1, -2, 3, 0.5], np.float32),
    "half": np.array(0.5, np.float32),
    "one": np.array(1, np.int64),
    "three": np.array(3, np.int64),
    "ints": np.array([2, 2], np.int64),
    "shape": np.array([3], np.int64),
    "axis": np.array([1], np.int64),
    "byte": np.array(3, np.int8),
    "w8": RNG.integers(-9, 9, (4, 3)).astype(np.int8),
    "h": np.array([0.1, 2, 70000, 3e-8], np.float32),
}


def of(*nodes: Any) -> list[Any]:
    """The nodes of a model."""
    return list(nodes)


def cast(name: str, to: int, source: str = "x") -> Any:
    return node("Cast", [source], [name], to=to)


_F16, _BF16, _E4M3 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN
#: Operators of one input, with their attributes.
_ALONE: dict[str, dict[str, Any]] = {
    **{n: {} for n in ("LeakyRelu", "Elu", "Celu", "Selu", "ThresholdedRelu", "Mish")},
    **{n: {} for n in ("HardSigmoid", "HardSwish", "Softplus", "Softsign", "Shrink")},
    **{n: {"axis": 1} for n in ("LogSoftmax", "Hardmax")},
    "Gelu": {"approximate": "tanh"},
    "Dropout": {},
}
#: Models of rows of four floats by name: their nodes, and the operator set.
MODELS: dict[str, tuple[list[Any], int]] = {
    **{name: (of(node(name, ["x"], ["y"], **how)), 22) for name, how in _ALONE.items()},
    "gelu": (of(node("Gelu", ["x"], ["y"])), 20),
    "prelu": (of(node("PRelu", ["x", "four"], ["y"])), 18),
    "mean": (of(node("Mean", ["x", "four", "x"], ["y"])), 18),
    "l1": (of(node("ReduceL1", ["x", "axis"], ["y"])), 18),
    "log sum": (of(node("ReduceLogSum", ["x", "axis"], ["y"])), 18),
    "layer": (of(node("LayerNormalization", ["x", "four"], ["y"], axis=1)), 17),
    "wide": (
        of(
            cast("d", TensorProto.DOUBLE),
            node("LogSoftmax", ["d"], ["e"], axis=1),
            cast("y", FLOAT, "e"),
        ),
        18,
    ),
    "triangle": (of(node("Trilu", ["x"], ["y"])), 18),
    "unique": (of(node("Unique", ["x"], ["y"])), 18),
    "crop": (of(node("CenterCropPad", ["x", "shape"], ["y"], axes=[1])), 18),
    "dynamic": (
        of(
            node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ),
        18,
    ),
    "there and back": (
        of(
            node("QuantizeLinear", ["x", "half", "byte"], ["q"]),
            node("MatMulInteger", ["q", "w8", "byte"], ["m"]),
            cast("y", FLOAT, "m"),
        ),
        18,
    ),
    **{
        f"through {kind}": (
            of(cast("n", kind), cast("m", FLOAT, "n"), node("Neg", ["m"], ["y"])),
            21,
        )
        for kind in (_F16, _BF16, _E4M3, TensorProto.FLOAT8E5M2, TensorProto.INT4)
    },
    "half precision": (
        of(
            cast("n", _F16),
            cast("k", _F16, "h"),
            node("Add", ["n", "k"], ["a"]),
            node("MatMul", ["a", "k"], ["b"]),
            cast("y", FLOAT, "b"),
        ),
        21,
    ),
    "answers in float16": (of(cast("y", _F16)), 21),
    "answers in bfloat16": (of(cast("y", _BF16)), 21),
    "loop": (of(node("Loop", ["three", "", "x"], ["y"], body=_LOOP)), 18),
    "collected": (
        of(
            node("SequenceEmpty", [], ["ns"]),
            node("Loop", ["three", "", "ns"], ["y"], body=_COLLECT),
        ),
        18,
    ),
    "mapped": (of(*_SHORT, node("SequenceMap", ["s"], ["y"], body=_MAP)), 18),
    "inserted": (
        of(
            *_SHORT,
            node("SequenceInsert", ["s", "x", "one"], ["t"]),
            node("SequenceAt", ["t", "one"], ["y"]),
        ),
        18,
    ),
    "erased": (of(*_SHORT, node("SequenceErase", ["s", "one"], ["y"])), 18),
    "side by side": (of(*_SHORT, node("ConcatFromSequence", ["s"], ["y"], axis=1)), 18),
    "how many": (of(*_SHORT, node("SequenceLength", ["s"], ["y"])), 18),
    "split": (of(node("SplitToSequence", ["x", "ints"], ["y"], axis=1)), 18),
}


def made(name: str) -> ModelProto:
    """A model of the table; types of answers are worked out by whoever reads it."""
    nodes, opset = MODELS[name]
    read = {each for item in nodes for each in item.input}
    constants = {key: value for key, value in CONSTANTS.items() if key in read | {"half"}}
    proto = model(nodes, X, [("y", FLOAT, None)], constants, opset)
    proto.ir_version = 10
    proto.graph.output[0].ClearField("type")
    return proto


def answer_of(proto: ModelProto, x: Any) -> Any:
    """What onnxruntime answers; of types that numpy has not, None."""
    bare = session(proto).get_outputs()[0].type == "tensor(bfloat16)"
    return None if bare else theirs(proto, x=x)[0]


def alike(got: Any, want: Any) -> None:
    """The very same arrays, or lists of these."""
    if isinstance(want, list):
        assert isinstance(got, list)
        for one, other in zip(got, want, strict=True):
            alike(one, other)
        return
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if want.dtype.kind == "V":  # numpy compares none of such types
        got, want = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_onnxruntimes(name: str) -> None:
    proto = made(name)
    with pytest.raises(NotNative, match="native"):
        import_model(proto, native_only=True)
    session, program = InferenceSession(proto), import_model(proto)
    plan = oven.bake(program.flow)
    for x in (ROWS, ROWS[:1], ROWS[12:]):
        want = answer_of(proto, x)
        found = [session.run(None, {"x": x})[0], program.run(plan.run, {"x": x})["y"]]
        if want is None:
            want = x.astype(ml_dtypes.bfloat16)
        for got in found:
            alike(got, want)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_values_of_narrow_types_come_in_and_out(kind: str) -> None:
    dtype = np.dtype(np.float16 if kind == "float16" else getattr(ml_dtypes, kind))
    element = helper.np_dtype_to_tensor_dtype(dtype)
    nodes = [node("Reshape", ["x", "flat"], ["r"]), node("Identity", ["r"], ["y"])]
    inputs: list[Port] = [("x", element, ["N", 3])]
    proto = model(nodes, inputs, [("y", element, [None])], {"flat": np.array([-1], np.int64)}, 21)
    proto.ir_version = 10
    x = np.abs(np.array([[1.5, 2, 3], [0.25, 0, 7]])).astype(np.float32).astype(dtype)
    session = InferenceSession(proto)
    name = "float8e4m3fn" if kind == "float8_e4m3fn" else kind.replace("_", "")
    assert session.get_inputs()[0].type == f"tensor({name})"
    (got,) = session.run(None, {"x": x})
    alike(got, x.reshape(-1))
    with pytest.raises((FlourError, ValueError)):
        session.run(None, {"x": x.astype(np.float64)})
    plan = oven.bake(flour.from_onnx(proto))
    alike(plan.run({"x": x})["y"], x.reshape(-1))


def test_constants_of_narrow_types_become_numbers_at_import() -> None:
    weights = np.array([[0.1], [2], [3e-8], [-1]], np.float16)
    nodes = [cast("w", FLOAT, "k"), node("MatMul", ["x", "w"], ["y"])]
    proto = model(nodes, X, Y, {"k": weights}, 21)
    program = import_model(proto, native_only=True)
    got = program.run(oven.bake(program.flow).run, {"x": ROWS[12:]})["y"]
    np.testing.assert_allclose(got, ROWS[12:] @ weights.astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize("name", ["StringConcat", "RegexFullMatch", "StringSplit"])
def test_strings(name: str) -> None:
    how = {"RegexFullMatch": {"pattern": "[a-z ]+"}, "StringSplit": {"delimiter": " "}}
    reads = ["x", "x"] if name == "StringConcat" else ["x"]
    answers = ["y", "n"] if name == "StringSplit" else ["y"]
    nodes = [node(name, reads, answers, **how.get(name, {}))]
    outputs = [(each, STRING, None) for each in answers]
    proto = model(nodes, [("x", STRING, ["N", 2])], outputs, opset=20)
    for item in proto.graph.output:
        item.ClearField("type")
    want = answer_of(proto, WORDS)
    assert InferenceSession(proto).run(["y"], {"x": WORDS})[0].tolist() == want.tolist()
    program = import_model(proto)
    got = program.run(oven.bake(program.flow).run, {"x": WORDS})["y"]
    assert np.asarray(got).tolist() == want.tolist()


def test_what_is_around_stays_native() -> None:
    w = RNG.normal(size=(4, 4)).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("LayerNormalization", ["a", "four"], ["b"], axis=1),
        node("LeakyRelu", ["b"], ["c"]),
        node("TreeEnsembleRegressor", ["c"], ["y"], domain="ai.onnx.ml", **_tree()),
    ]
    proto = model(nodes, X, Y, {"w": w, "four": CONSTANTS["four"]}, 17)
    program = import_model(proto)
    names = [item.op.name for item in program.flow.nodes()]
    assert names.count("Opaque") == 1
    assert "Trees" in names
    want = answer_of(proto, ROWS[12:])
    got = program.run(oven.bake(program.flow).run, {"x": ROWS[12:]})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(
        InferenceSession(proto).run(None, {"x": ROWS[12:]})[0], want, rtol=1e-6
    )


def _tree() -> dict[str, Any]:
    return {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_values": [0.1, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.5, -2.5],
        "n_targets": 1,
    }


def test_fixed_inputs_may_belong_to_what_onnxruntime_runs() -> None:
    nodes = [node("SplitToSequence", ["x", "sizes"], ["y"], axis=1)]
    proto = model(nodes, [*X, ("sizes", INT64, [2])], [])
    proto.graph.output.append(helper.make_tensor_sequence_value_info("y", FLOAT, None))
    sizes = np.array([1, 3])
    plan = oven.bake(flour.from_onnx(proto, fixed={"sizes": sizes}))
    alike(plan.run({"x": ROWS})["y"], [ROWS[:, :1], ROWS[:, 1:]])


def test_complex_numbers_have_no_place() -> None:
    ends = [("x", TensorProto.COMPLEX64, [2])], [("y", TensorProto.COMPLEX64, [2])]
    with pytest.raises(NotNative):
        import_model(model([node("Identity", ["x"], ["y"])], *ends), native_only=True)
