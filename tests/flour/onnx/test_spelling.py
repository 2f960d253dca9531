"""Casts between strings and numbers: what onnxruntime reads and writes, compiled and defined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oven
from flour.core.errors import InputError
from flour.core.types import INTS, Scalar, Vector
from flour.language.flow import source
from flour.onnx import import_model
from flour.ops.onnx_cast import ParseNumbers, WriteWhole
from tests.onnx_models import ml, model, node, onnxruntime, same, wanted

_TO = {"float32": 1, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float64": 11}
_TO |= {"uint32": 12, "uint64": 13}
_READ = ["1", " 2.5", "\t-3x", "+7", "0", "-0", "300", "12345678901", "00012", "5.", "1_0", "8 9"]
_POINT = [".5", "-.25e2", "1e5", "1e", "1e+", "nan", "-NaN", "inf", "-INFINITY", "0x1F", "0x1p-3"]
_POINT += ["0.1", "1e-320x", "1234567890123456789012", "0.30000000000000004", "1e22", "1e23"]
_NONE = ["", " ", "abc", "-", "+-1", ".", "e5", "\u0663", "None", "x1"]
_ANY = settings(max_examples=60, deadline=None)


def _cast(source_type: str, target: str, width: int = 1) -> Any:
    nodes = [node("Cast", ["x"], ["y"], to=_TO[target])]
    return model(nodes, {"x": (source_type, [None, width])}, {"y": target})


def _column(values: list[Any], kind: str = "object") -> Any:
    return np.array(values, kind)[:, None]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("target", ["float32", "float64"])
def test_strings_as_numbers_with_a_point(target: str, native: bool) -> None:  # noqa: FBT001
    fine = [text for text in [*_READ, *_POINT] if text != "1e-320x"]
    same(_cast("string", target), {"x": _column(fine)}, native=native, rtol=0, atol=0)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("target", ["int32", "int64", "bool", "uint32", "uint64"])
def test_strings_as_whole_numbers(target: str, native: bool) -> None:  # noqa: FBT001
    ends = ["9223372036854775807", "-1", "0x10", "2.9"]
    same(_cast("string", target), {"x": _column([*_READ, *ends])}, native=native)


@pytest.mark.parametrize("text", [*_NONE, "1e400", "-1e400", "1e-400", "1e-320x"])
def test_what_is_no_number_is_refused_by_both(text: str) -> None:
    proto, value = _cast("string", "float64"), _column(["1", text])
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException):
        wanted(proto, {"x": value})
    plan = import_model(proto, native_only=True).flow.plan()
    with pytest.raises(InputError, match="row 1, column 0"):
        plan.run(value)


@pytest.mark.parametrize("text", ["nan", "inf", ".5", "9223372036854775808", ""])
def test_what_is_no_whole_number_is_refused_by_both(text: str) -> None:
    proto, value = _cast("string", "int64"), _column([text])
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.RuntimeException):
        wanted(proto, {"x": value})
    with pytest.raises(InputError, match="does not start with a number"):
        import_model(proto, native_only=True).flow.plan().run(value)


_PLANS = {
    dtype: oven.bake(ParseNumbers(dtype)(source("x", Scalar("string"))))
    for dtype in ("float64", "float32")
}


def _floats(texts: Any, dtype: str = "float64") -> Any:
    return _PLANS[dtype].run(texts)["output"]


@_ANY
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)))
@example([0.30000000000000004, 5e22, 9007199254740993.0, 1.7976931348623157e308])
def test_a_float_is_read_as_it_was_written(values: list[float]) -> None:
    texts = np.array([*map(repr, values), ""], object)[:-1]
    np.testing.assert_array_equal(_floats(texts), np.array(values, np.float64))


@_ANY
@given(st.integers(0, 10**18 - 1), st.integers(-22, 22), st.sampled_from(["float64", "float32"]))
@example(9007199254740993, 0, "float64")
@example(90071992547409935, -1, "float64")
def test_digits_are_rounded_once(digits: int, power: int, dtype: str) -> None:
    text = f"{digits}e{power}"
    got = _floats(np.array([text], object), dtype)
    assert got.tolist() == [np.array(float(text)).astype(dtype).item()]


def test_decimals_as_people_write_them_need_no_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = np.array(["-12.5", "0.1", "1e-5", "3.141592653589793", "7", " 100.00 "], object)
    monkeypatch.setattr(ParseNumbers, "reference", None)
    assert _floats(texts).tolist() == [*map(float, texts)]


def test_a_missing_string_is_what_onnxruntime_reads_it_as() -> None:
    values = np.array([np.nan, "1"], object)
    assert _floats(values).tolist()[1:] == [1.0]
    assert np.isnan(_floats(values)[0])
    with pytest.raises(InputError, match="'None'"):
        _floats(np.array([None], object))


# --- numbers as strings ---------------------------------------------------------------------------

_NUMBERS = [
    0.1,
    -0.0,
    1 / 3,
    1e-5,
    1e-4,
    99999999,
    1e8,
    123456789.0,
    np.nan,
    np.inf,
    -np.inf,
    1e-45,
]


@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "int32", "bool", "uint64"])
def test_numbers_as_strings(kind: str) -> None:
    values = _NUMBERS if kind.startswith("f") else [0, 1, 7, 10, 2**31 - 1]
    same(_cast(kind, "string"), {"x": _column(values).astype(kind)})


@pytest.mark.parametrize("kind", INTS)
def test_whole_numbers_are_written_and_read_in_one_native_stage(kind: str) -> None:
    ends = np.iinfo(kind)
    values = np.array([[0, 9], [10, 99], [1, 100], [ends.max, ends.min]], kind)
    flow = ParseNumbers(kind)(WriteWhole()(source("x", Vector(2, kind))))
    plan = oven.bake(flow)
    assert [stage.kind for stage in plan.stages] == ["fused"]
    for rows in (values, values[:3]):
        np.testing.assert_array_equal(plan.run(rows)["output"], rows)


@pytest.mark.parametrize("width", [1, 3])
def test_written_numbers_are_looked_up_where_they_are(width: int) -> None:
    values = np.random.default_rng(1).integers(-30, 30, (50, width))
    nodes = [
        node("Cast", ["x"], ["s"], to=8),
        ml("OneHotEncoder", ["s"], ["y"], cats_strings=["0", "-7", "12", "x", "29"]),
    ]
    proto = model(nodes, {"x": ("int64", [None, width])}, {"y": "float32"})
    plan = same(proto, {"x": values}, native=True).flow.plan()
    assert [stage.kind for stage in plan.stages] == ["fused"]


def test_what_is_too_large_for_a_sign_is_not_written_with_one() -> None:
    values = np.array([[2**64 - 1], [2**64 - 7], [7]], np.uint64)
    known = ["-1", "-7", "18446744073709551615", "7"]
    nodes = [
        node("Cast", ["x"], ["s"], to=8),
        ml("OneHotEncoder", ["s"], ["y"], cats_strings=known),
    ]
    same(model(nodes, {"x": ("uint64", [None, 1])}, {"y": "float32"}), {"x": values}, native=True)


def test_labels_are_a_table_of_strings() -> None:
    nodes = [
        node("ArgMax", ["x"], ["place"], axis=1, keepdims=0),
        ml("ArrayFeatureExtractor", ["labels", "place"], ["label"]),
        node("Cast", ["label"], ["y"], to=8),
    ]
    labels = np.array([[2.5, 1 / 3, 1e10]], np.float32)
    known = {"labels": labels}
    proto = model(nodes, {"x": ("float32", [None, 3])}, {"y": "string"}, constants=known)
    program = same(proto, {"x": np.eye(3, dtype=np.float32)}, native=True)
    assert {item.op.name for item in program.flow.nodes()} & {"WriteFloats", "WriteWhole"} == set()
