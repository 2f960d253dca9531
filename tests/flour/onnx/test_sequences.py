"""Lists of tensors: made, taken apart and answered, as onnxruntime does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper

import flour
import oven
from flour.onnx import NotNative, import_model
from runtime import InferenceSession
from tests.onnx_parts import FLOAT, INT64, model, node, theirs

RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(7, 3)).astype(np.float32)
LIST = helper.make_tensor_sequence_value_info


def listing(
    nodes: Sequence[Any],
    inputs: Sequence[Any] = (("x", FLOAT, ["N", 3]),),
    constants: dict[str, Any] | None = None,
    answer: Any = None,
    opset: int = 18,
) -> ModelProto:
    """A model that answers with a list of floats, or with what is given."""
    made = model(nodes, inputs, [], constants, opset)
    made.graph.output.append(LIST("y", FLOAT, None) if answer is None else answer)
    return made


def agree(proto: ModelProto, feed: dict[str, Any], *, compiled: bool = False) -> None:
    """Raise unless a native session answers what onnxruntime answers."""
    mine = InferenceSession(proto, native_only=True, compiled=compiled).run(None, feed)
    for got, want in zip(mine, theirs(proto, **feed), strict=True):
        assert isinstance(got, list) == isinstance(want, list)
        pairs = zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]
        for one, other in pairs:
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def several_labels() -> ModelProto:
    """A classifier for each of two labels, of two and of three classes."""
    weights = {
        "a": RNG.normal(size=(3, 2)).astype(np.float32),
        "b": RNG.normal(size=(3, 3)).astype(np.float32),
    }
    nodes = [
        *(node("MatMul", ["x", name], [f"{name}_scores"]) for name in weights),
        *(node("Softmax", [f"{name}_scores"], [f"{name}_classes"]) for name in weights),
        node("SequenceConstruct", ["a_classes", "b_classes"], ["y"]),
    ]
    return listing(nodes, constants=weights)


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_probabilities_of_several_labels(count: int) -> None:
    agree(several_labels(), {"x": ROWS[:count]}, compiled=True)


def test_a_program_has_them_side_by_side() -> None:
    proto = several_labels()
    program = flour.from_onnx(proto, native_only=True)
    assert str(program.types["y"]) == "Vector[5, float32]"
    answer = oven.bake(program).run(ROWS)["y"]
    np.testing.assert_allclose(answer.sum(axis=1), 2.0, rtol=1e-6)
    session = InferenceSession(proto)
    assert session.get_outputs()[0].type == "seq(tensor(float))"
    (found,) = session.run(["y"], {"x": ROWS})
    np.testing.assert_array_equal(np.concatenate(found, axis=1), answer)
    (listed,) = session.run(None, {"x": ROWS.tolist()})  # the long way
    np.testing.assert_array_equal(np.concatenate(listed, axis=1), answer)


def test_models_of_one_structure_have_lists_of_their_own() -> None:
    for _ in range(4):
        agree(several_labels(), {"x": ROWS}, compiled=True)


def test_a_converted_classifier_of_several_outputs() -> None:
    pytest.importorskip("skl2onnx")
    from skl2onnx import to_onnx
    from sklearn.linear_model import LogisticRegression
    from sklearn.multioutput import MultiOutputClassifier

    x = RNG.normal(size=(60, 3)).astype(np.float32)
    labels = np.stack([x[:, 0] > 0, np.digitize(x[:, 1], [-0.5, 0.5])], axis=1).astype(np.int64)
    fitted = MultiOutputClassifier(LogisticRegression()).fit(x, labels)
    proto = to_onnx(
        fitted, x[:1], target_opset={"": 18, "ai.onnx.ml": 3}, options={"zipmap": False}
    )
    agree(proto, {"X": x[:9]}, compiled=True)


TAKEN = {
    "at": [node("SequenceAt", ["s", "minus"], ["y"])],
    "handed on": [node("Identity", ["s"], ["t"]), node("SequenceAt", ["t", "one"], ["y"])],
}


@pytest.mark.parametrize("name", TAKEN)
def test_lists_are_taken_apart(name: str) -> None:
    nodes = [node("Neg", ["x"], ["z"]), node("SequenceConstruct", ["x", "z"], ["s"]), *TAKEN[name]]
    places = {"minus": np.int64(-1), "one": np.int64(1)}
    constants = {key: np.asarray(value) for key, value in places.items()}
    answer = helper.make_tensor_value_info("y", FLOAT, None)
    agree(listing(nodes, constants=constants, answer=answer), {"x": ROWS})


REFUSED = {
    "a place out of it": [
        node("SequenceConstruct", ["x"], ["s"]),
        node("SequenceAt", ["s", "two"], ["t"]),
        node("SequenceConstruct", ["t"], ["y"]),
    ],
    "another type": [
        node("Cast", ["x"], ["z"], to=INT64),
        node("SequenceConstruct", ["x", "z"], ["y"]),
    ],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_list_of_a_row(name: str) -> None:
    proto = listing(REFUSED[name], constants={"two": np.array(2, np.int64)})
    with pytest.raises(NotNative):
        import_model(proto, native_only=True)


def test_a_list_for_an_operator_of_tensors_is_refused() -> None:
    nodes = [node("SequenceConstruct", ["x", "x"], ["s"]), node("Neg", ["s"], ["y"])]
    answer = helper.make_tensor_value_info("y", FLOAT, None)
    with pytest.raises(NotNative, match="no native code"):
        import_model(listing(nodes, answer=answer), native_only=True)


def test_lists_and_black_parts_live_together() -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["z"]),
        node("SequenceConstruct", ["x", "z"], ["y"]),
    ]
    proto = listing(nodes)
    mine, want = InferenceSession(proto).run(None, {"x": ROWS}), theirs(proto, x=ROWS)
    for got, other in zip(mine[0], want[0], strict=True):
        np.testing.assert_allclose(got, other, rtol=1e-6, atol=1e-6)
