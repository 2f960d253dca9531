"""Where weights are in a model's bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from flour.onnx.wire import split
from tests.onnx_parts import FLOAT, model, node

ML = "ai.onnx.ml"


def example(scale: float = 1.0, **more: Any) -> ModelProto:
    """Weights of every kind that there is, and numbers that are none."""
    return model(
        [
            node("Scaler", ["x"], ["a"], domain=ML, offset=[scale, 2.0, 3.0], scale=[4.0]),
            node("MatMul", ["a", "w"], ["b"]),
            node("Mul", ["b", "d"], ["c"]),
            node("Clip", ["c", "low"], ["e"]),
            node("LeakyRelu", ["e"], ["f"], alpha=0.5),
            node("Reshape", ["f", "shape"], ["y"]),
        ],
        [("x", FLOAT, ["N", 3])],
        [("y", FLOAT, ["N", 2])],
        {
            "w": np.arange(6, dtype=np.float32).reshape(3, 2) * np.float32(scale),
            "d": np.array([scale], np.float64),
            "low": np.array(scale, np.float32),
            "shape": np.array([-1, 2]),
        },
        **more,
    )


def test_lists_of_floats_and_constants_of_floats_are_weights() -> None:
    data = example().SerializeToString()
    layout = split(data)
    assert layout is not None
    weights = layout.weights(data)
    assert weights is not None
    found = dict(zip([leaf.owner for leaf in layout.leaves], weights, strict=True))
    assert {owner: (x.shape, x.dtype.name) for owner, x in found.items()} == {
        ("node", 0, "offset"): ((3,), "float32"),
        ("node", 0, "scale"): ((1,), "float32"),
        ("tensor", "w"): ((3, 2), "float32"),
        ("tensor", "d"): ((1,), "float64"),
        ("tensor", "low"): ((), "float32"),
    }
    assert found["node", 0, "offset"].tolist() == [1, 2, 3]
    assert found["tensor", "w"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_layout_fits_models_that_differ_in_weights_alone() -> None:
    one, other = (example(scale).SerializeToString() for scale in (1.0, -7.5))
    layout, again = split(one), split(other)
    assert layout is not None
    assert again is not None
    assert layout.key == again.key
    assert layout.fits(other)
    assert again.joined(again.own(other)) == other
    assert layout.joined(layout.own(other)) == other


def test_everything_else_is_structure() -> None:
    data = example().SerializeToString()
    layout = split(data)
    assert layout is not None
    other = example()
    other.graph.node[4].attribute[0].f = 0.25
    assert not layout.fits(other.SerializeToString())
    other = example()
    other.graph.initializer[3].raw_data = np.array([2, -1]).tobytes()
    assert not layout.fits(other.SerializeToString())
    assert not layout.fits(example(opset=17).SerializeToString())


def test_what_is_not_understood_has_no_layout() -> None:
    def refused(change: Any) -> bool:
        made = example()
        change(made)
        return split(made.SerializeToString()) is None

    assert not refused(lambda made: made.graph.name)
    assert refused(lambda made: made.functions.add())
    assert refused(lambda made: made.graph.sparse_initializer.add())
    assert refused(lambda made: made.graph.initializer.append(made.graph.initializer[0]))
    assert refused(lambda made: made.graph.initializer[0].dims.append(2))
    assert refused(lambda made: made.graph.initializer[0].float_data.append(2.0))
    outside = TensorProto.DataLocation.Value("EXTERNAL")
    assert refused(lambda made: setattr(made.graph.initializer[0], "data_location", outside))
    tree = node("TreeEnsembleRegressor", ["x"], ["z"], domain=ML, nodes_values=[1.0])
    assert refused(lambda made: made.graph.node.append(tree))
    branch = node("If", ["x"], ["z"], then_branch=made_graph(), else_branch=made_graph())
    assert refused(lambda made: made.graph.node.append(branch))
    assert refused(
        lambda made: made.graph.node[0].attribute.append(made.graph.node[0].attribute[0])
    )


def made_graph() -> Any:
    """A graph within an attribute."""
    return helper.make_graph([node("Neg", ["x"], ["n"])], "inner", [], [])


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_bytes_have_a_layout_that_gives_them_back_or_none(data: st.DataObject) -> None:
    whole = bytearray(example().SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(1, len(whole)))])
    layout = split(cut)
    if layout is not None:
        assert layout.joined(layout.own(cut)) == cut
        layout.weights(cut)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    st.lists(st.binary(max_size=300), max_size=20),
    st.data(),
)
def test_lists_of_integers_and_texts_are_passed_over(
    numbers: list[int], texts: list[bytes], data: st.DataObject
) -> None:
    """Weights behind them are found; and what ends in the middle of one is not understood."""
    proto = example()
    proto.graph.node[5].attribute.extend(
        [
            helper.make_attribute("i", [0, *numbers]),
            helper.make_attribute("s", [b"", *texts]),
            helper.make_attribute("f", [0.5, 2.0]),
        ]
    )
    whole = proto.SerializeToString()
    layout = split(whole)
    assert layout is not None
    assert [leaf.owner for leaf in layout.leaves][2] == ("node", 5, "f")
    assert layout.joined(layout.own(whole)) == whole
    cut = data.draw(st.integers(1, len(whole) - 1))
    if split(whole[:cut]) is not None:
        ModelProto.FromString(whole[:cut])  # protobuf reads it, too
