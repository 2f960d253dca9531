"""Scalers, imputers, encoders and their like of ai.onnx.ml against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flour.core.errors import InputError
from flour.onnx import import_model
from flour.onnx.errors import NotNative
from tests.onnx_models import answered, ml, model, node, onnx, same, wanted

_OFTEN = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
_FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.5, 1e-30, 3e5, float("nan"), float("inf")])
_WORDS = ["a", "", "日本", "Ü", "a ", "other"]


def _matrix(draw: Any, values: st.SearchStrategy[Any], dtype: Any, width: int) -> NDArray[Any]:
    rows = draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=4))
    return np.array(rows, dtype)


def _check(made: Any, x: NDArray[Any], out: str, *, static: bool = False, **how: Any) -> None:
    """The node alone, over rows of a batch or over one static tensor."""
    kind = "string" if x.dtype == object else x.dtype.name
    shape = x.shape if static else (None, *x.shape[1:])
    proto = model([made], {"X": (kind, shape)}, {"Y": out}, **how)
    same(proto, {"X": x})


@_OFTEN
@given(st.data(), st.booleans(), st.sampled_from(["float32", "float64", "int64", "int32"]))
def test_scalers(data: st.DataObject, static: bool, dtype: str) -> None:  # noqa: FBT001
    numbers = _FLOATS if dtype.startswith("float") else st.integers(-9, 9)
    x, count = _matrix(data.draw, numbers, dtype, 3), data.draw(st.sampled_from([1, 3]))
    some = {"offset": [0.5, -1.0, 2.0][:count], "scale": [2.0, 0.1, -3.0][:count]}
    _check(ml("Scaler", ["X"], ["Y"], **some), x, "float32", static=static)


@_OFTEN
@given(st.data(), st.booleans(), st.sampled_from(["MAX", "L1", "L2"]))
def test_normalizers(data: st.DataObject, static: bool, norm: str) -> None:  # noqa: FBT001
    finite = st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.5, 1e-3, 300.0, float("nan")])
    x = _matrix(data.draw, finite, np.float32, 3)
    _check(ml("Normalizer", ["X"], ["Y"], norm=norm), x, "float32", static=static)


@_OFTEN
@given(st.data(), st.sampled_from([float("nan"), 0.0, 2.5]), st.sampled_from([1, 3]))
def test_imputers(data: st.DataObject, marker: float, count: int) -> None:
    x, fill = _matrix(data.draw, _FLOATS, np.float32, 3), [7.0, 8.0, 9.0][:count]
    node = ml("Imputer", ["X"], ["Y"], imputed_value_floats=fill, replaced_value_float=marker)
    _check(node, x, "float32")


def test_imputers_of_whole_numbers() -> None:
    x = np.array([[1, -1, 3], [0, 0, -1]], np.int64)
    node = ml("Imputer", ["X"], ["Y"], imputed_value_int64s=[4, 5, 6], replaced_value_int64=-1)
    _check(node, x, "int64")


@_OFTEN
@given(st.data(), st.booleans(), st.sampled_from([0.0, -0.5, 1.0]))
def test_binarizers(data: st.DataObject, static: bool, limit: float) -> None:  # noqa: FBT001
    # NaN is refused: see below.
    x = _matrix(data.draw, _FLOATS.filter(lambda value: value == value), np.float32, 2)  # noqa: PLR0124
    _check(ml("Binarizer", ["X"], ["Y"], threshold=limit), x, "float32", static=static)


@pytest.mark.parametrize("places", [[0], [2, 0, 2]])
@pytest.mark.parametrize("static", [True, False])
def test_features_are_picked(places: list[int], static: bool) -> None:  # noqa: FBT001
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    node = ml("ArrayFeatureExtractor", ["X", "P"], ["Y"])
    _check(node, x, "float32", static=static, constants={"P": np.array(places, np.int64)})


@pytest.mark.parametrize("table", [[[5, 7, 9]], [[5, 7, 9], [1, 2, 3]], [5, 7, 9]])
def test_labels_are_picked_by_places_of_the_data(table: Any) -> None:
    x = np.array([2, 0, 1, 1], np.int64)
    node = ml("ArrayFeatureExtractor", ["T", "X"], ["Y"])
    _check(node, x, "int64", constants={"T": np.array(table, np.int64)})


PICKED = np.array([[5.0, 7.0, 9.0]], np.float32)
#: A node, what it reads, and rows of which onnxruntime refuses the second.
REFUSED: dict[str, tuple[Any, Any]] = {
    "NaN is binarised": (ml("Binarizer", ["X"], ["Y"]), np.array([[1.0], [np.nan]], np.float32)),
    "beyond a table": (ml("ArrayFeatureExtractor", ["T", "X"], ["Y"]), np.array([2, 3])),
    "below a table": (ml("ArrayFeatureExtractor", ["T", "X"], ["Y"]), np.array([2, -1])),
    "beyond an axis": (node("Gather", ["T", "X"], ["Y"], axis=1), np.array([2, 3])),
    "below an axis": (node("Gather", ["T", "X"], ["Y"], axis=1), np.array([-3, -4])),
}


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_rows_that_onnxruntime_refuses_are_refused(name: str, native: bool) -> None:  # noqa: FBT001
    made, x = REFUSED[name]
    constants = {"T": PICKED} if "T" in made.input else {}
    kind = {"X": (x.dtype.name, (None, *x.shape[1:]))}
    proto = model([made], kind, {"Y": "float32"}, constants=constants)
    same(proto, {"X": x[:1]}, native=native)
    program = import_model(proto, native_only=True)
    with pytest.raises(InputError, match=r"refuses NaN|beyond an axis of 3"):
        answered(program, {"X": x}, native=native)
    with pytest.raises(Exception, match="ONNXRuntimeError"):
        wanted(proto, {"X": x})


def test_features_side_by_side() -> None:
    node = ml("FeatureVectorizer", ["A", "B"], ["Y"], inputdimensions=[2, 3])
    inputs = {"A": ("int64", [None, 2]), "B": ("int64", [None, 3])}
    proto = model([node], inputs, {"Y": "float32"})
    same(proto, {"A": np.ones((4, 2), np.int64), "B": np.arange(12).reshape(4, 3)})


_LABELS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("string", "int64", "strings int64s", {"default_int64": -9}),
    ("string", "float32", "strings floats", {}),
    ("string", "string", "strings strings", {"default_string": "none"}),
    ("int64", "string", "int64s strings", {}),
    ("int64", "int64", "int64s int64s", {}),
    ("int64", "float32", "int64s floats", {"default_float": 0.5}),
    ("float32", "int64", "floats int64s", {}),
    ("float32", "string", "floats strings", {}),
    ("float32", "float32", "floats floats", {}),
]
_VALUES: dict[str, Any] = {
    "strings": ["a", "", "日本", "a"],
    "int64s": [3, -1, 7, 3],
    "floats": [1.5, 0.0, float("nan"), 1.5],
}


def _some(kind: str) -> NDArray[Any]:
    values: Any = {"string": _WORDS, "int64": [3, -1, 7, 0, 9, 3]}.get(kind)
    if values is None:
        return np.array([[1.5, 0.0, -0.0], [np.nan, 2.0, np.inf]], np.float32)
    return np.array(values, object if kind == "string" else kind).reshape(2, 3)


@pytest.mark.parametrize(("source", "target", "names", "how"), _LABELS)
@pytest.mark.parametrize("version", [2, 4])
def test_label_encoders(source: str, target: str, names: str, how: Any, version: int) -> None:
    keys, values = names.split()
    given = {f"keys_{keys}": _VALUES[keys], f"values_{values}": _VALUES[values]}
    node = ml("LabelEncoder", ["X"], ["Y"], **given, **how)
    for static in (True, False):
        _check(node, _some(source), target, static=static, opsets={"ai.onnx.ml": version})


_TENSORS: dict[str, NDArray[Any]] = {
    "string": np.array(["a", "", "日本", "a"], object),
    "int64": np.array([3, -1, 1 << 60, 3]),
    "float32": np.array([1.5, 0.0, np.nan, 1.5], np.float32),
    "float64": np.array([1.5, 0.0, np.nan, 1.5]),
}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *[("string", target) for target in _TENSORS],
        *[("int64", "string"), ("int64", "float64"), ("float64", "float64"), ("float64", "string")],
        *[("float64", "int64"), ("float32", "int64")],
    ],
)
@pytest.mark.parametrize("default", [True, False])
def test_label_encoders_of_tensors(source: str, target: str, default: bool) -> None:  # noqa: FBT001
    tensor = onnx.numpy_helper.from_array
    how = {"keys_tensor": tensor(_TENSORS[source]), "values_tensor": tensor(_TENSORS[target])}
    if default:
        how["default_tensor"] = tensor(_TENSORS[target][1:2].copy())
    x = _some(source if source in ("string", "int64") else "float32")
    x = x.astype("float64") if source == "float64" else x
    made = ml("LabelEncoder", ["X"], ["Y"], **how)
    _check(made, x, target, opsets={"ai.onnx.ml": 4})


@pytest.mark.parametrize("kind", ["string", "int64"])
def test_one_hot_encoders_that_know_all_there_is(kind: str) -> None:
    cats = {"cats_strings": ["b", "日本"]} if kind == "string" else {"cats_int64s": [7, 3]}
    made = ml("OneHotEncoder", ["X"], ["Y"], zeros=0, **cats)
    values: Any = ["日本", "b"] if kind == "string" else [3, 7]
    x = np.array([values, values[::-1]], object if kind == "string" else kind)
    _check(made, x, "float32")
    x[0, 1] = "a" if kind == "string" else 5
    proto = model([made], {"X": (kind, (None, 2))}, {"Y": "float32"})
    program = import_model(proto, native_only=True)
    with pytest.raises(InputError, match="is not a category"):
        program.run(program.flow.reference, {"X": x})


@pytest.mark.parametrize("source", ["string", "int64"])
def test_label_encoders_of_version_one(source: str) -> None:
    target = "int64" if source == "string" else "string"
    node = ml("LabelEncoder", ["X"], ["Y"], classes_strings=["a", "日本", "", "a"])
    _check(node, _some(source), target, opsets={"ai.onnx.ml": 1})


@pytest.mark.parametrize("source", ["string", "int64"])
def test_category_mappers(source: str) -> None:
    target = "int64" if source == "string" else "string"
    pairs = {"cats_strings": ["a", "日本", ""], "cats_int64s": [3, 7, 9]}
    _check(ml("CategoryMapper", ["X"], ["Y"], **pairs), _some(source), target)


@pytest.mark.parametrize("source", ["string", "int64", "float32"])
@pytest.mark.parametrize("static", [True, False])
def test_one_hot_encoders(source: str, static: bool) -> None:  # noqa: FBT001
    cats = {"cats_strings": ["a", "日本"]} if source == "string" else {"cats_int64s": [7, 3, 0]}
    x = _some(source) if source != "float32" else np.array([[3.9, 0, 7], [-0.5, 3, 8]], np.float32)
    _check(ml("OneHotEncoder", ["X"], ["Y"], zeros=1, **cats), x, "float32", static=static)


def test_categories_of_another_kind_are_none_of_the_inputs() -> None:
    for kind, cats in (("int64", {"cats_strings": ["1", "2"]}), ("string", {"cats_int64s": [1]})):
        proto = model(
            [ml("OneHotEncoder", ["X"], ["Y"], **cats)], {"X": (kind, [None, 2])}, {"Y": "float32"}
        )
        values = np.array([["1", "2"], ["2", "0"]]).astype(object if kind == "string" else kind)
        same(proto, {"X": values})


def test_a_zipmap_is_a_matrix_with_names() -> None:
    node = ml("ZipMap", ["X"], ["Y"], classlabels_strings=["no", "yes"])
    proto = model([node], {"X": ("float32", [None, 2])}, {"Y": "float32"})
    program = import_model(proto, native_only=True)
    assert program.outputs[0].tensor.labels == ("no", "yes")


def test_native_code_of_a_chain() -> None:
    nodes = [
        ml("Imputer", ["X"], ["A"], imputed_value_floats=[1.0], replaced_value_float=float("nan")),
        ml("Scaler", ["A"], ["B"], offset=[0.5, 1.0, 2.0], scale=[2.0, 1.0, 0.5]),
        ml("Normalizer", ["B"], ["Y"], norm="L2"),
    ]
    proto = model(nodes, {"X": ("float32", [None, 3])}, {"Y": "float32"})
    same(proto, {"X": np.array([[1, np.nan, 3], [0.5, 1, 2]], np.float32)}, native=True)


def test_what_mixes_rows_is_not_native() -> None:
    proto = model([ml("Normalizer", ["X"], ["Y"])], {"X": ("float32", [None])}, {"Y": "float32"})
    with pytest.raises(NotNative, match="one row of features"):
        import_model(proto, native_only=True)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("keys", [["a", "None", "nan"], ["nan", "b"], ["a", "b"]])
@pytest.mark.parametrize("op", ["LabelEncoder", "OneHotEncoder"])
def test_missing_strings_are_texts(op: str, keys: list[str], native: bool) -> None:  # noqa: FBT001
    x = np.array([[None], ["a"], [np.nan], ["nan"], ["None"]], object)
    how: dict[str, Any] = {"keys_strings": keys, "values_int64s": [*range(len(keys))]}
    if op == "OneHotEncoder":
        how = {"cats_strings": keys, "zeros": 1}
    made, out = ml(op, ["X"], ["Y"], **how), "float32" if op == "OneHotEncoder" else "int64"
    same(model([made], {"X": ("string", [None, 1])}, {"Y": out}), {"X": x}, native=native)
