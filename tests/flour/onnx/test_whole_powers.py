"""ReduceLogSumExp of whole numbers: onnxruntime makes each power whole before it adds them up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.onnx_models import model, node, same

_ROWS = st.lists(st.integers(-3, 3), min_size=5, max_size=5)
_LOG = [node("ReduceLogSumExp", ["x"], ["y"], axes=[1], keepdims=0)]


@settings(max_examples=25, deadline=None)
@given(st.lists(_ROWS, min_size=1, max_size=4), st.sampled_from(["int32", "int64"]))
def test_only_the_largest_are_counted(rows: list[list[int]], kind: str) -> None:
    proto = model(_LOG, {"x": (kind, [None, 5])}, {"y": kind})
    same(proto, {"x": np.array(rows, kind)})


@pytest.mark.parametrize("value", [2**31 - 1, 2**31 - 2, -(2**31)])
def test_the_ends_of_what_a_type_holds(value: int) -> None:
    proto = model(_LOG, {"x": ("int32", [None, 3])}, {"y": "int32"})
    same(proto, {"x": np.array([[value] * 3, [value, 0, 1]], np.int32)}, native=True)
