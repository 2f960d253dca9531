"""Reading models: old files, functions, sizes; test_hostile.py has what is no valid model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import flour
from flour.onnx import DamagedModel, NotNative, errors, from_onnx, import_model
from flour.onnx.reading import NEWEST, read_model
from flour.onnx.tensor import Rows, Tensor


def graph(nodes: list[Any], constants: dict[str, Any] | None = None, output: str = "y") -> Any:
    """A graph from x (n, 2) to an output."""
    return helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (constants or {}).items()],
    )


def model(*nodes: Any, opset: int = 18, **constants: Any) -> Any:
    """A model of one graph."""
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph(list(nodes), constants), opset_imports=opsets)


def node(op: str, *names: str, **attributes: Any) -> Any:
    """A node whose last name is its output."""
    return helper.make_node(op, names[:-1], names[-1:], name=f"the_{op}", **attributes)


def answer(given: Any, x: Any) -> Any:
    """What the model's program answers."""
    program = import_model(given, native_only=True)
    return program.answer(program.flow.reference(program.feed({"x": np.asarray(x, np.float32)})))[
        "y"
    ]


def test_nodes_may_stand_in_any_order() -> None:
    made = model(node("Neg", "a", "y"), node("Add", "x", "x", "a"))
    assert answer(made, [[1, 2]]).tolist() == [[-2, -4]]


def test_functions_are_put_in_place() -> None:
    double = helper.make_function(
        "mine", "Double", ["a"], ["b"], [node("Add", "a", "a", "b")], [helper.make_opsetid("", 18)]
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    made = helper.make_model(
        graph([helper.make_node("Double", ["x"], ["y"], domain="mine")]),
        opset_imports=opsets,
        functions=[double],
    )
    assert answer(made.SerializeToString(), [[1, 2]]).tolist() == [[2, 4]]


def test_a_sparse_initialiser_is_its_dense_form() -> None:
    made = model(node("Mul", "x", "w", "y"))
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [5.0])
    places = helper.make_tensor("places", TensorProto.INT64, [1], [1])
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2]))
    assert answer(made, [[1, 2]]).tolist() == [[0, 10]]


def test_a_broadcast_of_the_oldest_versions() -> None:
    w = np.array([10, 20], np.float32)
    assert answer(
        model(node("Add", "x", "w", "y", broadcast=1), opset=6, w=w), [[1, 2]]
    ).tolist() == [[11, 22]]


def test_a_path_to_nothing_and_an_object_of_another_kind(tmp_path: Path) -> None:
    for given in (tmp_path / "none.onnx", tmp_path, 7):
        with pytest.raises(DamagedModel):
            from_onnx(given)


def test_a_refusal_names_the_node_and_why() -> None:
    with pytest.raises(NotNative) as refused:
        from_onnx(model(node("Unheard", "x", "y")), native_only=True)
    assert "Unheard 'the_Unheard': no native code for this operator" in str(refused.value)


def huge_product() -> Any:
    ones = np.ones((1 << 13, 1), np.float32)
    return model(node("MatMul", "c", "d", "w"), node("Mul", "x", "w", "y"), c=ones, d=ones.T)


def doubled_again_and_again() -> Any:
    steps = [node("Concat", f"c{i}", f"c{i}", f"c{i + 1}", axis=0) for i in range(60)]
    return model(*steps, node("Mul", "x", "c60", "y"), c0=np.ones(2, np.float32))


def endless_depth() -> Any:
    constants: dict[str, Any] = {"depth": np.array(2**40), "values": np.array([0, 1], np.float32)}
    steps = [
        node("ArgMax", "x", "i", axis=1),
        helper.make_node("OneHot", ["i", "depth", "values"], ["y"], name="the_OneHot"),
    ]
    return model(*steps, **constants)


def many_large_ones() -> Any:
    steps = [node("Unsqueeze", "x", "one", "u"), node("Expand", "u", "shape", "c0")]
    steps += [node("Transpose", f"c{i}", f"c{i + 1}", perm=[0, 2, 1]) for i in range(9)]
    constants: dict[str, Any] = {"shape": np.array([1, 1 << 9, 2]), "one": np.array([1])}
    return model(*steps, node("Neg", "c9", "y"), **constants)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (huge_product, "the product has 67,108,864 values"),
        (doubled_again_and_again, "the result has 33,554,432 values"),
        (endless_depth, "values in a row"),
    ],
)
def test_little_models_do_not_fill_the_memory(made: Callable[[], Any], why: str) -> None:
    with pytest.raises((NotNative, errors.TooLarge)) as refused:
        from_onnx(made(), native_only=True)
    assert why in str(refused.value)


def test_many_tensors_do_not_fill_the_memory_either(monkeypatch: pytest.MonkeyPatch) -> None:
    from_onnx(many_large_ones(), native_only=True)
    monkeypatch.setattr("flour.onnx.importer.MAX_MADE", 4 << 10)
    with pytest.raises(NotNative, match="no native code") as refused:
        from_onnx(many_large_ones(), native_only=True)
    assert "values and index tables would fill the memory" in str(refused.value)


def test_nodes_remember_their_names() -> None:
    assert "Neg 'the_Neg'" in flour.show(from_onnx(model(node("Neg", "x", "y"))))


def test_several_columns_are_a_record() -> None:
    inputs = [helper.make_tensor_value_info(name, 1, ["n", 1]) for name in "ab"]
    outputs = [helper.make_tensor_value_info("y", 1, ["n", 1])]
    made = helper.make_model(
        helper.make_graph([node("Add", "a", "b", "y")], "two", inputs, outputs),
        opset_imports=[helper.make_opsetid("", 18)],
    )
    program = from_onnx(made)
    assert program.reference([{"a": 1, "b": 2}, {"b": 5, "a": 3}])["y"].tolist() == [[3], [8]]


def test_inputs_can_be_fixed() -> None:
    made = model(node("ReduceSum", "x", "axes", "y"))
    made.graph.input.append(helper.make_tensor_value_info("axes", TensorProto.INT64, [1]))
    with pytest.raises(NotNative, match="no native code"):
        from_onnx(made, native_only=True)
    program = from_onnx(made, native_only=True, fixed={"axes": [1]})
    assert program.reference(np.array([[1, 2]], np.float32))["y"].tolist() == [[3]]


def test_the_number_of_rows_multiplies_and_divides() -> None:
    assert Rows(2) * 3 == Rows(6)
    assert Rows(6) // 3 == Rows(2)
    assert Rows(6) // Rows(3) == 2
    assert Rows(1) != -1


@pytest.mark.parametrize(
    "act",
    [lambda n: n == 1, lambda n: n // 2, bool, lambda n: n * 0.5],
    ids=["equal", "half", "bool", "float"],
)
def test_the_number_of_rows_is_no_number(act: Callable[[Rows], object]) -> None:
    with pytest.raises(NotNative):
        act(Rows(3))


def test_known_tensors_know_their_rows() -> None:
    shape = np.empty(2, object)
    shape[:] = [Rows(), 3]
    assert Tensor.constant(shape).symbolic
    assert not Tensor.constant(np.array([4, 3], object)).symbolic
    assert Tensor.constant(np.array(["a"], object)).dtype == "string"


def test_a_model_keeps_what_it_says_of_itself() -> None:
    made = model(node("Neg", "x", "y"))
    made.producer_name, made.model_version = "somebody", 3
    onnx.helper.set_model_props(made, {"stage": "one"})
    read = read_model(made)
    assert (read.producer, read.version, read.metadata) == ("somebody", 3, {"stage": "one"})


@pytest.mark.parametrize("domain", ["", "ai.onnx.ml"])
def test_operator_sets_of_the_future_are_refused(domain: str) -> None:
    made = model(node("Identity", "x", "y"))
    newest = NEWEST[domain]
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    entry = next(item for item in made.opset_import if item.domain == domain)
    entry.version = newest
    assert read_model(made).opsets[domain] == newest
    for version in (newest + 1, 99, 2**62):
        entry.version = version
        with pytest.raises(DamagedModel, match=f"operator set {version}, {newest} is the newest"):
            read_model(made)


def test_the_newest_operator_sets_there_are_have_been_looked_at() -> None:
    from onnx import defs

    released = defs.C.schema_version_map()
    assert all(released[domain][1] <= newest for domain, newest in NEWEST.items())
