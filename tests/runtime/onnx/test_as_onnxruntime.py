"""Values at the edges, and what a session says of itself, as onnxruntime has them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto
from skl2onnx import to_onnx
from skl2onnx.common.data_types import StringTensorType
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from runtime import InferenceSession
from tests.house import ROOT
from tests.onnx_models import needs_locale
from tests.onnx_parts import FLOAT, INT64, model, node, theirs

INF, NAN = np.inf, np.nan
ODD = np.array([[INF, -INF, NAN], [3, 3e38, -3e38], [-INF, -INF, -INF], [0, -0.0, 1]])
WHOLE = np.array([[2, 0, -1, 3], [-2, 1, 0, -3]])
DOUBLE, INT32 = TensorProto.DOUBLE, TensorProto.INT32


def one(
    op: str, kind: int, width: int, opset: int = 18, domain: str = "", **how: Any
) -> ModelProto:
    """A model of one operator; upper-case names in `how` are inputs, the rest attributes."""
    given = {name: value for name, value in how.items() if name.isupper()}
    rest = {name: value for name, value in how.items() if not name.isupper()}
    constants = {name: np.asarray(value) for name, value in given.items() if value is not None}
    names = ["x", *(name if name in constants else "" for name in given)]
    nodes = [node(op, names, ["y"], domain=domain, **rest)]
    return model(nodes, [("x", kind, ["N", width])], [("y", kind, None)], constants, opset)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "bounds", [{}, {"LOW": 0}, {"LOW": None, "HIGH": 0}, {"LOW": -1, "HIGH": INF}]
)
def test_a_clip_without_a_bound_leaves_no_infinity(dtype: str, bounds: dict[str, Any]) -> None:
    with np.errstate(over="ignore"):
        x = ODD.astype(dtype)
    how: dict[str, Any] = {
        name: None if v is None else np.array(v, dtype) for name, v in bounds.items()
    }
    proto = one("Clip", FLOAT if dtype == "float32" else DOUBLE, 3, **how)
    for rows in (x, x[:1]):
        got = InferenceSession(proto).run(None, {"x": rows})
        np.testing.assert_array_equal(got[0], theirs(proto, x=rows)[0])


@pytest.mark.parametrize("how", [{}, {"min": 0.0}, {"max": 0.0}, {"min": -1.0, "max": 1.0}])
def test_nor_does_one_whose_bounds_are_attributes(how: dict[str, Any]) -> None:
    proto, x = one("Clip", FLOAT, 3, 10, **how), ODD.astype(np.float32)
    got = InferenceSession(proto).run(None, {"x": x})
    np.testing.assert_array_equal(got[0], theirs(proto, x=x)[0])


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("power", [-1, -2, 0, 2, [-1, -2, 1, 2]])
def test_whole_numbers_to_powers_of_either_sign(kind: str, power: Any) -> None:
    proto = one("Pow", INT32 if kind == "int32" else INT64, 4, E=np.array(power, kind))
    x = WHOLE.astype(kind)
    got = InferenceSession(proto).run(None, {"x": x})
    np.testing.assert_array_equal(got[0], theirs(proto, x=x)[0])


@pytest.mark.parametrize("norm", ["MAX", "L1"])
def test_normalised_rows_of_infinities(norm: str) -> None:
    proto, x = one("Normalizer", FLOAT, 3, 18, "ai.onnx.ml", norm=norm), ODD.astype(np.float32)
    with np.errstate(all="ignore"):
        (got,) = InferenceSession(proto).run(None, {"x": x})
    np.testing.assert_allclose(got, theirs(proto, x=x)[0], rtol=1e-6)


@pytest.mark.parametrize("op", ["Gelu", "LogSoftmax", "Softplus"])
def test_functions_of_odd_numbers(op: str) -> None:
    x = np.array([[3e38, -3e38, 0.5], [NAN, 1, 2], [INF, 1, 2]], np.float32)
    proto = one(op, FLOAT, 3, 20)
    np.testing.assert_array_equal(
        InferenceSession(proto).run(None, {"x": x})[0], theirs(proto, x=x)[0]
    )


# --- strings --------------------------------------------------------------------------------------


class Named:
    """What has a text."""

    def __str__(self) -> str:
        return "hello world"


def _cells(*values: Any) -> Any:
    cells = np.empty((len(values), 1), object)
    cells[:, 0] = values
    return cells


@needs_locale
@pytest.mark.parametrize(
    "odd", [None, float("nan"), 3, 3.5, b"a world", Named(), ["a", "world"], True], ids=str
)
@pytest.mark.parametrize("alone", [True, False])
def test_anything_is_a_text(odd: Any, *, alone: bool) -> None:
    steps = make_pipeline(TfidfVectorizer(), LogisticRegression())
    texts = ["hello world", "a world", "none of it", "nan or 3 then"]
    documents = to_onnx(
        steps.fit(texts, [0, 1, 0, 1]),
        initial_types=[("X", StringTensorType([None, 1]))],
        options={"zipmap": False},
    )
    hashed = to_onnx(
        FeatureHasher(8, input_type="string").fit([["a"]]),
        initial_types=[("X", StringTensorType([None, 1]))],
    )
    cells = _cells(odd) if alone else _cells("a world", odd, "b")
    for proto in (documents, hashed):
        want = theirs(proto, X=cells)
        for got, other in zip(InferenceSession(proto).run(None, {"X": cells}), want, strict=True):
            assert got.dtype == other.dtype
            np.testing.assert_allclose(got, other, rtol=1e-6)


# --- what it says of itself -----------------------------------------------------------------------


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("op", ["Softplus", "Unique", "SplitToSequence", "DynamicQuantizeLinear"])
def test_shapes_that_only_onnxruntime_knows(op: str, *, declared: bool) -> None:
    names = ["y", "s", "z"] if op == "DynamicQuantizeLinear" else ["y"]
    proto = model([node(op, ["x"], names)], [("x", FLOAT, ["N", 6])], [("y", FLOAT, None)])
    if not declared or op in ("SplitToSequence", "DynamicQuantizeLinear"):
        proto.graph.output[0].ClearField("type")
    (want,) = onnxruntime.InferenceSession(proto.SerializeToString()).get_outputs()
    (got,) = InferenceSession(proto).get_outputs()
    assert (got.type, got.shape) == (want.type, want.shape)


_WITHOUT = """
import sys
sys.modules["onnx"] = None
import flour, runtime
doors = (
    lambda: flour.from_onnx(sys.argv[1]),
    lambda: flour.from_onnx(open(sys.argv[1], "rb").read()),
    lambda: runtime.InferenceSession(sys.argv[1]),
    lambda: flour.to_onnx(flour.vector("x", 3).linear([[1.0, 2, 3]], [0.5])),
)
for door in doors:
    try:
        door()
    except flour.FlourError as problem:
        assert "pip install 'pretzel-runtime[onnx]'" in str(problem), problem
        print("told")
"""


def test_a_machine_without_onnx_is_told_what_to_install(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(one("Relu", FLOAT, 3).SerializeToString())
    command = [sys.executable, "-c", _WITHOUT, str(path)]
    found = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.split() == ["told"] * 4
