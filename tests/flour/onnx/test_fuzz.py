"""Nodes that are not as their operators have them: refused with a reason, or what is left works."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from flour.errors import FlourError
from flour.onnx import from_onnx
from runtime import InferenceSession
from tests.onnx_parts import FLOAT, model, node

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
