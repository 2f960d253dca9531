"""Options of onnxruntime's sessions that change answers, and what else its sessions have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import DictionaryType, FloatTensorType, StringTensorType
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from runtime import InferenceSession
from runtime.onnx.errors import InvalidArgument

#: Values that onnxruntime's options refer to.
KEPT: list[Any] = []
ROWS = np.arange(8, dtype=np.float32).reshape(4, 2)


def model(*, overridable: bool = False) -> bytes:
    """x @ w + b."""
    weights = {"w": np.ones((2, 3), np.float32), "b": np.zeros(3, np.float32)}
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])]
    if overridable:
        ends += [helper.make_tensor_value_info("b", TensorProto.FLOAT, [3])]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"])],
        "linear",
        ends,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = made.SerializeToString()
    return data


def with_bias(*values: float) -> Any:
    options = ort.SessionOptions()
    given = ort.OrtValue.ortvalue_from_numpy(np.array(values, np.float32))
    options.add_initializer("b", given)
    KEPT.append(given)
    return options


def test_an_initializer_in_the_options_takes_the_place_of_the_models() -> None:
    for _ in range(3):  # later ones come out of images
        for values in ((1.0, 2.0, 3.0), (5.0, 6.0, 7.0)):
            options = with_bias(*values)
            want = ort.InferenceSession(model(), options).run(None, {"x": ROWS})
            np.testing.assert_array_equal(
                InferenceSession(model(), options).run(None, {"x": ROWS}), want
            )
        np.testing.assert_array_equal(
            InferenceSession(model()).run(None, {"x": ROWS})[0], ROWS.sum(1)[:, None].repeat(3, 1)
        )


def test_other_options_change_nothing_and_write_nothing(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    session = InferenceSession(model(), options)
    np.testing.assert_array_equal(
        session.run(None, {"x": ROWS})[0], ROWS.sum(1)[:, None].repeat(3, 1)
    )
    assert list(tmp_path.iterdir()) == []
    assert options.enable_profiling
    assert options.optimized_model_filepath.endswith("optimised.onnx")
    for name in ("end_profiling", "get_profiling_start_time_ns"):
        with pytest.raises(AttributeError, match="plans write no profile"):
            getattr(session, name)


def test_overridable_initializers_are_listed_as_there() -> None:
    data = model(overridable=True)
    theirs, ours = ort.InferenceSession(data), InferenceSession(data)
    assert [item.name for item in theirs.get_inputs()] == [item.name for item in ours.get_inputs()]
    want = [(item.name, item.type, item.shape) for item in theirs.get_overridable_initializers()]
    assert (
        [tuple(item) for item in ours.get_overridable_initializers()]
        == want
        == [("b", "tensor(float)", [3])]
    )
    assert InferenceSession(model()).get_overridable_initializers() == []


def test_values_of_onnxruntime_are_fed_like_arrays() -> None:
    feed = {"x": ort.OrtValue.ortvalue_from_numpy(ROWS)}
    want = ort.InferenceSession(model()).run(None, feed)
    np.testing.assert_array_equal(InferenceSession(model()).run(None, feed), want)


def test_an_initializer_of_another_size_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="another array for 'b'"):
        InferenceSession(model(), with_bias(1.0, 2.0))


def test_a_map_may_have_arrays_of_one_number() -> None:
    pipeline = make_pipeline(DictVectorizer(), LogisticRegression())
    pipeline.fit([{"a": 1.0, "b": 2.0}, {"a": 3.0, "c": 1.0}], [0, 1])
    kind = DictionaryType(StringTensorType([1]), FloatTensorType([1]))
    options = {id(pipeline): {"zipmap": False}}
    data = convert_sklearn(pipeline, initial_types=[("x", kind)], options=options)
    feed = {"x": {"a": np.array(1.5, np.float32), "b": 2.0}}
    theirs, ours = (
        session(data.SerializeToString()).run(None, feed)
        for session in (ort.InferenceSession, InferenceSession)
    )
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
