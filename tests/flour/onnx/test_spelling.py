"""Casts between strings and numbers: what onnxruntime reads and writes, compiled and defined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import OpaqueFailed
from flour.onnx import NotNative, import_model
from tests.onnx_models import ml, model, node, same, wanted

_TO = {"float32": 1, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float64": 11}
_TO |= {"uint32": 12, "uint64": 13}


def _cast(source_type: str, target: str, width: int = 1) -> Any:
    nodes = [node("Cast", ["x"], ["y"], to=_TO[target])]
    return model(nodes, {"x": (source_type, [None, width])}, {"y": target})


def _column(values: list[Any], kind: str = "object") -> Any:
    return np.array(values, kind)[:, None]


@pytest.mark.parametrize("target", ["float32", "float64", "int64", "bool", "uint32"])
def test_numbers_are_read_by_onnxruntime(target: str) -> None:
    proto = _cast("string", target)
    texts = _column(["1", "7x", "-3", "0", " 12"][: 2 if target == "bool" else 5])
    with pytest.raises(NotNative, match="native"):
        import_model(proto, native_only=True)
    plan = oven.bake(flour.from_onnx(proto))
    np.testing.assert_array_equal(
        plan.run(texts)["y"].reshape(-1), wanted(proto, {"x": texts})["y"].reshape(-1)
    )
    for odd in ("", "abc"):
        with pytest.raises(OpaqueFailed):
            plan.run(_column([odd]))


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


@pytest.mark.parametrize("width", [1, 3])
def test_written_numbers_are_looked_up_where_they_are(width: int) -> None:
    values = np.random.default_rng(1).integers(-30, 30, (50, width))
    nodes = [
        node("Cast", ["x"], ["s"], to=8),
        ml("OneHotEncoder", ["s"], ["y"], cats_strings=["0", "-7", "12", "x", "29"]),
    ]
    proto = model(nodes, {"x": ("int64", [None, width])}, {"y": "float32"})
    plan = oven.bake(same(proto, {"x": values}, native=True).flow)
    assert [stage.kind for stage in plan.program.stages] == ["fused"]


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
