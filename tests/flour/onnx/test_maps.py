"""Models whose inputs are maps, against onnxruntime: one map is one row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flour
import oven
from flour.core.errors import FlourError, NotNumeric, ParameterError, WrongDtype
from flour.core.types import Pairs, from_data, to_data
from flour.onnx import import_model
from flour.onnx.errors import NotNative
from runtime import InferenceSession, Runtime
from runtime.onnx.zipmap_input import entry_of_maps
from tests.onnx_models import OPSETS, ml, onnx, wanted

_OFTEN = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
_KINDS = {"string": 8, "int64": 7, "float32": 1}
_NAMES = ["a", "b", "é", "", "a"]
_NUMBERS = [5, -1, 5, 1 << 60, -(1 << 63)]
_VALUES = st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e20, 1e300, float("nan"), float("inf"), 7, True])


def _model(node: Any, keys: str, out: str = "float32", *, tensor: bool = False) -> Any:
    """A node over a map X to float32; with `tensor`, also a column of numbers that it leaves."""
    helper = onnx.helper
    value = helper.make_tensor_type_proto(1, [])
    given = [helper.make_value_info("X", helper.make_map_type_proto(_KINDS[keys], value))]
    given += [helper.make_tensor_value_info("Z", 1, [None, 1])] if tensor else []
    made = [helper.make_tensor_value_info("Y", _KINDS[out], None)]
    made += [helper.make_tensor_value_info("W", 1, None)] if tensor else []
    nodes = [node, helper.make_node("Neg", ["Z"], ["W"])] if tensor else [node]
    graph = helper.make_graph(nodes, "g", given, made)
    opsets = [helper.make_opsetid(*item) for item in OPSETS.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _vectors(keys: str) -> Any:
    vocabulary = _NAMES if keys == "string" else _NUMBERS
    return _model(ml("DictVectorizer", ["X"], ["Y"], **{f"{keys}_vocabulary": vocabulary}), keys)


def _maps(keys: str) -> st.SearchStrategy[dict[Any, Any]]:
    known: list[Any] = [*_NAMES, "other"] if keys == "string" else [*_NUMBERS, 0, 6]
    return st.dictionaries(st.sampled_from(known), _VALUES, min_size=1)


def _rows_alone(proto: Any, maps: list[dict[Any, Any]]) -> Any:
    """What onnxruntime, which takes one map a call, answers to each."""
    return np.concatenate([wanted(proto, {"X": dict(row)})["Y"] for row in maps])  # type: ignore[dict-item]  # a map for an array


@pytest.mark.parametrize("keys", ["string", "int64"])
@_OFTEN
@given(st.data())
def test_maps_become_columns(keys: str, data: st.DataObject) -> None:
    proto, maps = _vectors(keys), data.draw(st.lists(_maps(keys), min_size=1, max_size=3))
    program, want = import_model(proto, native_only=True), _rows_alone(proto, maps)
    got = program.run(program.flow.reference, {"X": maps})["Y"]
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("keys", ["string", "int64"])
def test_sessions_take_one_map_or_several(keys: str) -> None:
    proto = _vectors(keys)
    known: list[Any] = _NAMES if keys == "string" else _NUMBERS
    maps: list[dict[Any, Any]] = [{known[0]: 1.5, known[2]: -2}, {known[1]: np.float32(7)}]
    session, want = InferenceSession(proto, native_only=True), _rows_alone(proto, maps)
    assert session.get_inputs()[0].type == f"map({keys},tensor(float))"
    np.testing.assert_array_equal(session.run(["Y"], {"X": maps})[0], want)
    np.testing.assert_array_equal(session.run(None, {"X": maps[0]})[0], want[:1])
    assert session.run(None, {"X": []})[0].shape == (0, len(known))


@pytest.mark.parametrize("keys", ["string", "int64"])
@_OFTEN
@given(st.data())
def test_one_map_of_any_numbers_in_a_session(keys: str, data: st.DataObject) -> None:
    proto, row = _vectors(keys), data.draw(_maps(keys))
    np.testing.assert_array_equal(
        _session(keys).run(None, {"X": row})[0], _rows_alone(proto, [row])
    )


@cache
def _session(keys: str) -> InferenceSession:
    return InferenceSession(_vectors(keys), native_only=True)


def test_a_map_is_laid_out_as_a_row_where_one_operator_reads_it() -> None:
    flow = flour.from_onnx(_vectors("string"), native_only=True)
    entry = entry_of_maps(flow)
    assert entry is not None
    made = entry({"X": {"a": 1.5, "é": 2, "other": 1e300}})
    assert made is not None
    assert made[0].tolist() == [[1.5, 0, 2, 0, 1.5]]
    for row in ({"a": 1e300}, {"a": float("nan")}, {"a": "x"}, {1: 1.0}, {"a": np.float32(1)}, 5):
        assert entry({"X": row}) is None
    both = flour.pairs("X").named_values(["a"]).to_dense()
    assert entry_of_maps(both) is None, "rows that are more than maps have no such way"


@pytest.mark.parametrize(("cast", "out"), [("TO_FLOAT", "float32"), ("TO_INT64", "int64")])
@_OFTEN
@given(st.data())
def test_maps_are_cast_to_as_many_columns_as_are_asked_for(
    cast: str, out: str, data: st.DataObject
) -> None:
    node = ml("CastMap", ["X"], ["Y"], cast_to=cast, map_form="SPARSE", max_map=4)
    proto = _model(node, "int64", out)
    maps = data.draw(
        st.lists(st.dictionaries(st.integers(0, 6), _VALUES, min_size=1), min_size=1, max_size=3)
    )
    program, want = import_model(proto, native_only=True), _rows_alone(proto, maps)
    with np.errstate(all="ignore"):
        got = program.run(program.flow.reference, {"X": maps})["Y"]
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_columns_as_many_as_the_map_has_keys_are_onnxruntimes() -> None:
    proto, feed = _model(ml("CastMap", ["X"], ["Y"]), "int64"), {"X": {3: 1.5, 0: -2.5}}
    with pytest.raises(NotNative, match="a number of columns that depends on a map's keys"):
        import_model(proto, native_only=True)
    assert InferenceSession(proto).run(None, feed)[0].tolist() == [[-2.5, 1.5]]


def test_what_fits_one_row_only_runs_on_onnxruntime() -> None:
    proto = _vectors("string")
    one = onnx.helper.make_tensor("one", 1, [1, 2], [5.0, 6.0])
    proto.graph.node[0].output[0] = "V"
    proto.graph.initializer.append(one)
    proto.graph.node.append(onnx.helper.make_node("Concat", ["V", "one"], ["Y"], axis=1))
    got = InferenceSession(proto).run(None, {"X": {"a": 1.0}})[0]
    assert got.tolist() == [[1, 0, 0, 0, 1, 5, 6]]


def test_a_map_beside_a_tensor() -> None:
    node = ml("DictVectorizer", ["X"], ["Y"], string_vocabulary=["a", "b"])
    session = InferenceSession(_model(node, "string", tensor=True), native_only=True)
    maps, numbers = [{"a": 1.0}, {"b": 2.0}], np.array([[5], [6]], np.float32)
    got = session.run(None, {"X": maps, "Z": numbers})
    assert [item.tolist() for item in got] == [[[1, 0], [0, 2]], [[-5], [-6]]]


def test_served_programs_take_maps_as_json_has_them() -> None:
    flow = flour.from_onnx(_vectors("int64"), native_only=True)
    with Runtime() as runtime:
        runtime.register("maps", flow)
        for row in ({5: 1.0, -1: 2.0}, {"5": 1.0, "-1": 2.0}):
            assert np.ravel(runtime.predict("maps", row)["Y"]).tolist() == [1, 2, 1, 0, 0]
        many = runtime.predict("maps", [{5: 1.0}, {7: 1.0}])["Y"]
    assert np.asarray(many).tolist() == [[1, 0, 1, 0, 0], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("keys", "row", "kind", "why"),
    [
        ("string", {1: 2.0}, WrongDtype, "keys are string"),
        ("string", {"a": "x"}, NotNumeric, "expected a number"),
        ("string", {"a": None}, NotNumeric, "expected a number"),
        ("string", {"a": [1.0]}, NotNumeric, "expected a number"),
        ("int64", {5.0: 1.0}, WrongDtype, "keys are int64"),
        ("int64", {"05": 1.0}, WrongDtype, "keys are int64"),
        ("int64", {1 << 63: 1.0}, WrongDtype, "keys are int64"),
        ("int64", {"9999999999999999999": 1.0}, WrongDtype, "keys are int64"),
        ("int64", [7], WrongDtype, "expected a map"),
        ("int64", 7, WrongDtype, "expected a map"),
    ],
)
def test_what_is_no_such_map_is_refused(
    keys: str, row: Any, kind: type[FlourError], why: str
) -> None:
    program = import_model(_vectors(keys), native_only=True)
    with pytest.raises(kind, match=why) as caught:
        program.run(program.flow.reference, {"X": [row]})
    assert str(caught.value.where).startswith("$.X[0]")


@pytest.mark.parametrize("given", [5, None, "abc"])
def test_what_is_no_map_nor_a_list_of_them_is_refused(given: Any) -> None:
    with pytest.raises(FlourError, match="expected a map, or a list of maps"):
        _session("int64").run(None, {"X": given})


def test_a_map_type_is_data() -> None:
    for kind in (Pairs(keys="int64"), Pairs(keys="string"), Pairs("::", lenient=True)):
        assert from_data(to_data(kind)) == kind
    with pytest.raises(ParameterError, match="no maps have such keys"):
        Pairs(keys="float32")


def test_the_order_of_columns_is_the_vocabularys() -> None:
    flow = flour.from_onnx(_vectors("string"), native_only=True)
    rows: list[Mapping[str, float]] = [{"é": 1.0, "a": 2.0}]
    assert oven.bake(flow).run(rows)["Y"].tolist() == [[2, 0, 1, 0, 2]]
