"""Nodes that are not as their operators have them: refused with a reason, or what is left works."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from flour.core.errors import FlourError
from flour.onnx import from_onnx
from runtime import InferenceSession
from tests.house import ended
from tests.onnx_parts import FLOAT, model, node

ROOT = Path(__file__).resolve().parents[3]
BATCH_OF_FOUR = [4, 4, 4, 9]


def _batch_normalised(widths: Sequence[int], **how: Any) -> ModelProto:
    """Statistics that are inputs, of these widths, for four channels."""
    names = ["scale", "bias", "mean", "variance"]
    ports = [(name, FLOAT, [width]) for name, width in zip(names, widths, strict=True)]
    return model(
        [node("BatchNormalization", ["x", *names], ["y"], **how)],
        [("x", FLOAT, [2, 4, 3]), *ports],
        [("y", FLOAT, [2, 4, 3])],
    )


def _two_of(op_type: str, second: str) -> ModelProto:
    return model(
        [node(op_type, ["x", second], ["y"])], [("x", FLOAT, ["N", 3])], [("y", FLOAT, ["N", 3])]
    )


def _top_of_nothing() -> ModelProto:
    return model(
        [node("TopK", ["x", "k"], ["y", "places"])],
        [("x", FLOAT, ["N", 0])],
        [("y", FLOAT, ["N", 0])],
        {"k": np.array([0], np.int64)},
    )


ODD = {
    "a maximum of what is left out": _two_of("Max", ""),
    "a minimum of what is left out": _two_of("Min", ""),
    "a sum with what is left out": _two_of("Sum", ""),
    "a variance of another width": _batch_normalised(BATCH_OF_FOUR),
    "trained with a variance of another width": _batch_normalised(BATCH_OF_FOUR, training_mode=1),
    "the largest of no numbers": _top_of_nothing(),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_node_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(FlourError) as caught:
        from_onnx(ODD[name].SerializeToString(), native_only=True)
    assert caught.value.where
    assert "native" in caught.value.what


@pytest.mark.parametrize("op_type", ["ReduceSum", "ArgMax"])
@pytest.mark.parametrize("keep", [0, 1, 2, -1, 2**62])
def test_only_one_keeps_a_dimension(op_type: str, keep: int) -> None:
    how: dict[str, Any] = {"axis": 1} if op_type == "ArgMax" else {"axes": [1]}
    kind = TensorProto.INT64 if op_type == "ArgMax" else FLOAT
    made = model(
        [node(op_type, ["x"], ["y"], keepdims=keep, **how)],
        [("x", FLOAT, ["N", 3])],
        [("y", kind, None)],
        opset=11,
    )
    session = InferenceSession(made.SerializeToString(), native_only=True)
    (y,) = session.run(None, {"x": np.eye(3, dtype=np.float32)[:2]})
    assert y.shape == ((2, 1) if keep == 1 else (2,))


# --- more than anybody wrote ---------------------------------------------------------------------


def _doubling(levels: int) -> ModelProto:
    """Functions that call the one below them twice."""
    own = [helper.make_opsetid("own", 1), helper.make_opsetid("", 18)]
    made = model([], [("x", FLOAT, ["N", 4])], [("y", FLOAT, ["N", 4])])
    made.opset_import.append(own[0])
    for level in range(levels):
        below = f"F{level - 1}"
        calls = [node(below, ["a"], ["t"], domain="own"), node(below, ["t"], ["b"], domain="own")]
        body = calls if level else [node("Neg", ["a"], ["b"])]
        made.functions.append(helper.make_function("own", f"F{level}", ["a"], ["b"], body, own))
    made.graph.node.append(node(f"F{levels - 1}", ["x"], ["y"], domain="own"))
    return made


def test_functions_that_become_nodes_without_number_are_refused() -> None:
    x = np.ones((2, 4), np.float32)
    np.testing.assert_array_equal(from_onnx(_doubling(4)).reference(x)["y"], x)
    with pytest.raises(FlourError, match="too many nodes") as caught:
        from_onnx(_doubling(60))
    assert caught.value.where == "functions"


def test_a_long_chain_without_native_code_is_one_part() -> None:
    names = ["x", *(f"v{place}" for place in range(3000)), "y"]
    nodes = [node("Det", [a], [b]) for a, b in pairwise(names)]
    made = model(nodes, [("x", FLOAT, ["N", 4, 4])], [("y", FLOAT, ["N"])])
    start = time.process_time()
    with pytest.raises(FlourError):  # a determinant has no determinant
        from_onnx(made)
    assert time.process_time() - start < 20  # a minute and more, when it was found round by round


HUGE: dict[str, tuple[list[str], dict[str, Any]]] = {
    "Expand": (["c", "many"], {}),
    "Tile": (["c", "many"], {}),
    "ConstantOfShape": (["many"], {}),
    "Range": (["zero", "end", "one"], {}),
}


@pytest.mark.parametrize("op_type", HUGE)
@pytest.mark.parametrize("native_only", [True, False])
def test_what_nobody_has_room_for_is_not_made(op_type: str, *, native_only: bool) -> None:
    reads, how = HUGE[op_type]
    nodes = [node(op_type, reads, ["huge"], **how), node("Cast", ["huge"], ["f"], to=FLOAT)]
    nodes += [node("ReduceSum", ["f"], ["s"], keepdims=0), node("Add", ["x", "s"], ["y"])]
    numbers = {"zero": 0, "one": 1, "end": 2**33}
    constants = {name: np.array(value, np.int64) for name, value in numbers.items()}
    constants |= {"many": np.array([2**16, 2**17], np.int64), "c": np.ones((1, 1), np.int64)}
    made = model(nodes, [("x", FLOAT, ["N", 4])], [("y", FLOAT, ["N", 4])], constants)
    with pytest.raises(FlourError, match="values in a row") as caught:
        from_onnx(made, native_only=native_only)
    assert op_type in str(caught.value.where)


def test_a_name_of_megabytes_is_not_repeated() -> None:
    made = _two_of("Max", "z" * 3_000_000)
    made.graph.node[0].name = "n" * 3_000_000
    with pytest.raises(FlourError) as caught:
        from_onnx(made.SerializeToString())
    assert len(str(caught.value)) < 10_000


# --- what nobody thought of -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "count"), [(0, 600), pytest.param(1_000_000, 20_000, marks=pytest.mark.soak)]
)
def test_changed_models_of_every_operator_are_refused_or_run(first: int, count: int) -> None:
    words = ("-m", "tests.onnx_mutants", str(first), str(count))
    done = ended(sys.executable, *words, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    refused, ran = map(int, done.stdout.split())
    assert refused + ran == count
    assert min(refused, ran) > count // 20


# --- ZipMap -------------------------------------------------------------------------------------


def _zipped(labels: Sequence[Any], *, declared: bool, constant: bool = False) -> ModelProto:
    key = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    named: dict[str, Any] = {key: labels}
    own = helper.make_node("ZipMap", ["p"], ["y"], domain="ai.onnx.ml", **named)
    first = node("Identity", ["c"], ["p"]) if constant else node("Abs", ["x"], ["p"])
    made = model(
        [first, own],
        [("x", FLOAT, ["N", len(labels)])],
        [("y", FLOAT, None)],
        {"c": np.arange(len(labels), dtype=np.float32)[None]},
    )
    kind = TensorProto.STRING if isinstance(labels[0], str) else TensorProto.INT64
    del made.graph.output[0]
    maps = helper.make_map_type_proto(kind, helper.make_tensor_type_proto(FLOAT, []))
    out = made.graph.output.add(name="y")
    if declared:
        out.type.CopyFrom(helper.make_sequence_type_proto(maps))
    return made


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("labels", [["no", "maybe", "é"], [2, 0, 1], [3, 7, 3], ["a", "b", "c"]])
def test_dicts_are_in_the_order_of_their_keys(
    labels: list[Any], *, declared: bool, constant: bool
) -> None:
    ort = pytest.importorskip("onnxruntime")
    data = _zipped(labels, declared=declared, constant=constant).SerializeToString()
    ours = InferenceSession(data, native_only=True)
    theirs = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).normal(size=(1 if constant else 4, len(labels)))
    feed = {"x": x.astype(np.float32)}
    (mine,), (want,) = ours.run(None, feed), theirs.run(None, feed)
    assert [list(row.items()) for row in mine] == [list(row.items()) for row in want]
    assert ours.get_outputs()[0].type == theirs.get_outputs()[0].type
    assert list(ours.get_outputs()[0].shape or []) == list(theirs.get_outputs()[0].shape)
