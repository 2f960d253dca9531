"""Pipelines of scikit-learn through skl2onnx: programs answer what onnxruntime answers.

tests/runtime/onnx/test_estimators.py has every estimator that is converted, with usual settings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flour.onnx import import_model
from tests.onnx_models import answered, needs_locale, same, wanted

skl2onnx = pytest.importorskip("skl2onnx")
pytest.importorskip("sklearn")

from sklearn import (  # noqa: E402 (after the skip)
    compose,
    ensemble,
    feature_extraction,
    gaussian_process,
    impute,
    linear_model,
    mixture,
    multiclass,
    multioutput,
    neighbors,
    pipeline,
    preprocessing,
    svm,
    tree,
)

_RNG = np.random.default_rng(20181008)
_TRAIN = _RNG.normal(size=(90, 5)).astype(np.float32)
_NEW = (_RNG.normal(size=(40, 5)) * 1.5).astype(np.float32)
_THREE = (np.abs(_TRAIN[:, 0] + _TRAIN[:, 1] * 2).astype(int) % 3).astype(np.int64)
_TWO = (_TRAIN[:, 0] + _TRAIN[:, 2] > 0).astype(np.int64)
_NUMBER = (_TRAIN @ np.arange(5)).astype(np.float32)
_MANY = np.stack([_NUMBER, _TRAIN[:, 1] - _NUMBER], axis=1)
_CODES = _RNG.integers(0, 4, size=(90, 3)).astype(np.int64)
_NAMES = np.array(["north", "south", "east"])[_THREE]


def _trees(kind: Any, **how: Any) -> Any:
    return kind(n_estimators=7, max_depth=4, random_state=0, **how)


_RBF = gaussian_process.kernels.RBF(2.0)
_SVC = {"random_state": 0, "C": 0.7}
_CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "logistic": linear_model.LogisticRegression,
    "svc poly": lambda: svm.SVC(kernel="poly", **_SVC),
    "svc sigmoid": lambda: svm.SVC(kernel="sigmoid", **_SVC),
    "forest": lambda: _trees(ensemble.RandomForestClassifier),
    "neighbours by blocks": lambda: neighbors.KNeighborsClassifier(3, metric="manhattan"),
}
_REGRESSORS: dict[str, Callable[[], Any]] = {
    "tweedie": lambda: linear_model.TweedieRegressor(power=0),
    "process": lambda: gaussian_process.GaussianProcessRegressor(_RBF, alpha=1.0, optimizer=None),
}
_SEVERAL: dict[str, Callable[[], Any]] = {
    "linear": linear_model.LinearRegression,
    "forest": lambda: _trees(ensemble.RandomForestRegressor),
    "neighbours": lambda: neighbors.KNeighborsRegressor(3),
    "each": lambda: multioutput.MultiOutputRegressor(linear_model.Ridge()),
}
_STEPS: dict[str, Callable[[], Any]] = {
    "l1": lambda: preprocessing.Normalizer("l1"),
    "max": lambda: preprocessing.Normalizer("max"),
    "binarizer": lambda: preprocessing.Binarizer(threshold=0.1),
    "mixture": lambda: mixture.GaussianMixture(2, random_state=0),
    "knn imputer": lambda: impute.KNNImputer(n_neighbors=2),
}
#: What has parts that are not native yet, and runs with onnxruntime inside.
_PARTLY = {"knn imputer"}

#: How far apart numbers may be, as a part of the largest of an output: docs/reference/onnx.md.
_WITHIN = 1e-6
#: Families whose terms cancel: exponents are differences of larger sums of squares.
_CANCELLING = {"mixture": 2e-6}


_OPSETS = {"": 17, "ai.onnx.ml": 3}


def _share(name: str) -> float:
    return _CANCELLING.get(name, _WITHIN)


def _converted(fitted: Any, sample: Any, options: dict[str, Any] | None = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {id(fitted): options} if options else None
        return skl2onnx.to_onnx(fitted, sample, options=given, target_opset=_OPSETS)


def _fitted(estimator: Any, x: Any, y: Any = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(x, y)


def _check(fitted: Any, x: NDArray[Any], **how: Any) -> None:
    proto = _converted(fitted, x[:1])
    same(proto, {proto.graph.input[0].name: x}, **how)


@pytest.mark.parametrize("name", sorted(set(_CLASSIFIERS) - _PARTLY))
@pytest.mark.parametrize("target", ["two", "three", "names"])
def test_classifiers(name: str, target: str) -> None:
    labels = {"two": _TWO, "three": _THREE, "names": _NAMES}[target]
    _check(_fitted(_CLASSIFIERS[name](), _TRAIN, labels), _NEW, share=_share(name))


@pytest.mark.parametrize("name", sorted({*_REGRESSORS, *_SEVERAL} - _PARTLY))
def test_regressors_of_one_target_or_several(name: str) -> None:
    for known, target in ((_REGRESSORS, _NUMBER), (_SEVERAL, _MANY)):
        if name in known:
            _check(_fitted(known[name](), _TRAIN, target), _NEW, share=_share(name))


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("target", [_TWO, _THREE], ids=["two", "three"])
def test_probabilities_of_pairs_that_are_not_known(target: Any, native: bool) -> None:  # noqa: FBT001
    fitted = _fitted(svm.SVC(probability=True, random_state=0, C=0.7), _TRAIN, target)
    data = np.where(np.arange(40)[:, None] % 3, _NEW, np.nan).astype(np.float32)
    _check(fitted, data, share=_WITHIN, native=native)


def test_a_gaussian_process_that_classifies() -> None:
    """Its model solves equations, for which onnxruntime has no operator: scikit-learn is asked."""
    fitted = _fitted(gaussian_process.GaussianProcessClassifier(_RBF, optimizer=None), _TRAIN, _TWO)
    proto = _converted(fitted, _NEW[:1], {"zipmap": False})
    got = answered(import_model(proto, native_only=True), {"X": _NEW}, native=True)
    # Its integrals are sums of terms a thousand times as large, in float32.
    np.testing.assert_allclose(got["probabilities"], fitted.predict_proba(_NEW), atol=1e-3)
    assert (got["label"].ravel() == fitted.predict(_NEW)).all()


def test_bins_of_numbers_that_are_none() -> None:
    fitted = _fitted(preprocessing.KBinsDiscretizer(3, encode="ordinal"), _TRAIN)
    data = np.where(_NEW > 1, np.inf, np.where(_NEW < -1, np.nan, _NEW)).astype(np.float32)
    _check(fitted, data, share=_WITHIN)


@pytest.mark.parametrize("kind", [tree.DecisionTreeClassifier, ensemble.ExtraTreesClassifier])
def test_trees_of_several_labels(kind: Any) -> None:
    labels = np.stack([_TWO, _TRAIN[:, 1] > 0, 1 - _TWO], axis=1).astype(np.int64)
    fitted = kind(max_depth=3, random_state=0).fit(_TRAIN, labels)
    proto = _converted(fitted, _NEW[:1], {"zipmap": False})
    for rows in (_NEW, _NEW[:1]):
        same(proto, {"X": rows}, share=_WITHIN)


@pytest.mark.parametrize("name", sorted(set(_STEPS) - _PARTLY))
def test_steps(name: str) -> None:
    data = np.where(np.abs(_NEW) > 2, np.nan, _NEW) if "imputer" in name else _NEW
    _check(_fitted(_STEPS[name](), _TRAIN, _TWO), data, share=_share(name))


@pytest.mark.parametrize("opset", [18, 20, 21])
def test_functions_of_a_model_that_cannot_all_be_put_in_place(opset: int) -> None:
    # Its functions are of other operator sets than the model: ONNX's inliner leaves some of them.
    holes = np.where(_TRAIN > 1, np.nan, _TRAIN)
    fitted = _STEPS["knn imputer"]().fit(holes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        proto = skl2onnx.to_onnx(fitted, holes[:1], target_opset=opset)
    feed = {"X": np.where(_NEW > 1, np.nan, _NEW).astype(np.float32)}
    program = import_model(proto)
    got = program.run(program.flow.reference, feed)
    for name, value in wanted(proto, feed).items():
        np.testing.assert_array_equal(got[name], value)


def test_a_constant_for_every_row() -> None:
    fitted = multiclass._ConstantPredictor().fit(_TRAIN, _TWO)
    _check(fitted, _NEW)


@pytest.mark.parametrize("name", ["one-hot", "ordinal"])
@pytest.mark.parametrize("kind", ["numbers", "strings"])
def test_encoders(name: str, kind: str) -> None:
    data = _CODES if kind == "numbers" else np.array(list("abcd"), object)[_CODES]
    encoder = (
        preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        if name == "one-hot"
        else preprocessing.OrdinalEncoder()
    )
    _check(encoder.fit(data), data, share=_WITHIN)


@pytest.mark.parametrize("kind", ["numbers", "strings"])
@pytest.mark.parametrize("signed", [True, False])
def test_hashed_features(kind: str, signed: bool) -> None:  # noqa: FBT001
    data = _CODES if kind == "numbers" else np.array(["a", "é", "", "abcdefghi"], object)[_CODES]
    hasher = feature_extraction.FeatureHasher(8, input_type="string", alternate_sign=signed)
    _check(hasher.fit(data), data, share=_WITHIN)


def test_dicts() -> None:
    rows = [{"a": 1.0, "city=Rome": 2.5}, {"b": -1.0, "a": 0.5}, {"b": 3.0}] * 4
    vectors = feature_extraction.DictVectorizer(dtype=np.float32)
    whole = pipeline.make_pipeline(vectors, linear_model.LogisticRegression())
    fitted, types = whole.fit(rows, np.arange(12) % 2), skl2onnx.common.data_types
    kind = types.DictionaryType(types.StringTensorType([1]), types.FloatTensorType([1]))
    proto = skl2onnx.convert_sklearn(fitted, "t", [("X", kind)], target_opset=17)
    for row in (*rows[:3], {"other": 1.0}):
        feed: dict[str, Any] = {"X": row}
        same(proto, feed, share=_WITHIN)


def test_columns_by_name_of_several_kinds() -> None:
    steps = [
        ("numbers", preprocessing.StandardScaler(), [0, 1]),
        ("codes", preprocessing.OneHotEncoder(handle_unknown="ignore"), [3]),
    ]
    data = np.concatenate([_TRAIN[:, :3], _CODES[:, :1]], axis=1).astype(np.float32)
    whole = pipeline.make_pipeline(
        compose.ColumnTransformer(steps), linear_model.LogisticRegression()
    )
    _check(_fitted(whole, data, _TWO), data, share=_WITHIN)


@pytest.mark.parametrize("metric", [None, "cdist"])
def test_distances_with_and_without_their_own_operator(metric: str | None) -> None:
    fitted = neighbors.KNeighborsRegressor(3, weights="distance").fit(_TRAIN, _NUMBER)
    proto = _converted(fitted, _NEW[:1], {"optim": metric} if metric else None)
    same(proto, {"X": _NEW}, share=_WITHIN)


_TEXTS = ["Dinner tonight? Hi!", "You WON a prize, prize_2", "", "won WON won", "Ünïcode İs here"]


@needs_locale
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"ngram_range": (1, 2)},
        {"analyzer": "char"},
        {"analyzer": "char", "ngram_range": (1, 3)},
        {"binary": True},
        {"token_pattern": r"\S+", "stop_words": ["you"], "sublinear_tf": True, "norm": "l1"},
    ],
)
def test_documents(how: dict[str, Any]) -> None:
    _check_documents(how)


@needs_locale
@pytest.mark.parametrize(
    "options",
    [
        {"separators": [" ", "[.]", "\\?", ",", "!"]},
        {"separators": ["\\W+"]},
        {"tokenexp": "[[:alpha:]_]+"},
        {"tokenexp": "(?i)[a-z]+|[0-9]"},
    ],
)
def test_documents_cut_by_patterns_of_their_own(options: dict[str, Any]) -> None:
    _check_documents({}, options)


def _check_documents(how: dict[str, Any], options: dict[str, Any] | None = None) -> None:
    vectors = feature_extraction.text.TfidfVectorizer(**how)
    whole = pipeline.make_pipeline(vectors, linear_model.LogisticRegression())
    documents = np.array(_TEXTS * 3, object)
    fitted = whole.fit(documents, np.arange(15) % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {id(vectors): options} if options else None
        kind = [("X", skl2onnx.common.data_types.StringTensorType([None, 1]))]
        proto = skl2onnx.convert_sklearn(fitted, "t", kind, options=given, target_opset=17)
    same(proto, {"X": documents[:, None]}, share=_WITHIN)
