"""Every estimator that skl2onnx converts, with its options, on NaN, infinity and no rows at all.

The estimators and their options are read from skl2onnx, so that what it learns to convert is tested
here too. A session answers, and refuses, as onnxruntime's does; `excused` has the rest.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime
import pytest
from skl2onnx import to_onnx
from skl2onnx._supported_operators import build_sklearn_operator_name_map
from skl2onnx.common._registration import _converter_pool
from sklearn.base import ClassifierMixin, is_regressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from runtime.onnx.session import InferenceSession
from tests.onnx_models import agree, largest

RNG = np.random.default_rng(20181008)
X, NEW = RNG.normal(size=(90, 5)), RNG.normal(size=(20, 5)) * 1.5
CODES = RNG.integers(0, 4, size=(90, 5)).astype(np.float64)
NUMBER = X @ np.arange(5) + RNG.normal(size=90) * 0.1
TWO = (X[:, 0] + X[:, 2] > 0).astype(np.int64)
THREE = (np.abs(X[:, 0] + X[:, 1] * 2).astype(int) % 3).astype(np.int64)
TARGETS = {
    "names": np.array(["north", "south", "east"])[THREE],
    "two": TWO,
    "three": THREE,
    "words": np.array(["no", "yes"])[TWO],
}
#: How far apart numbers may be, as a part of the largest of an output: docs/reference/onnx.md.
WITHIN = 2e-6

ESTIMATORS = {kind.__name__: kind for kind in build_sklearn_operator_name_map()}
#: Helpers of skl2onnx, and estimators of texts, of dicts and of labels; see test_ml_sklearn.py.
ELSEWHERE = set(
    """
    CastRegressor CastTransformer CountVectorizer DictVectorizer FeatureHasher KernelCenterer
    LabelBinarizer LabelEncoder ReplaceTransformer TfidfVectorizer _ConstantPredictor
    """.split()  # noqa: SIM905 (a line each would be a page)
)
_LOGISTIC, _BAYES = LogisticRegression(), GaussianNB()
_CLASSIFIERS = [("a", _LOGISTIC), ("b", _BAYES)]
_REGRESSORS = [("a", Ridge()), ("b", DecisionTreeRegressor(max_depth=3))]
_FEW = dict.fromkeys(("n_estimators", "max_depth"), 4) | {"random_state": 0, "n_init": 1}
_OVER_LOGISTIC = """
    CalibratedClassifierCV MultiOutputClassifier OneVsOneClassifier OneVsRestClassifier RFE RFECV
    SelectFromModel TunedThresholdClassifierCV
    """.split()  # noqa: SIM905 (a line each would be a page)
HOW: dict[str, dict[str, Any]] = {name: {"estimator": _LOGISTIC} for name in _OVER_LOGISTIC} | {
    "ColumnTransformer": {
        "transformers": [("a", StandardScaler(), [0, 1]), ("b", "passthrough", [2, 3])]
    },
    "FeatureUnion": {"transformer_list": [("a", StandardScaler()), ("b", MinMaxScaler())]},
    "GaussianRandomProjection": {"n_components": 3},
    "GridSearchCV": {"estimator": _LOGISTIC, "param_grid": {"C": [1.0]}, "cv": 2},
    "HistGradientBoostingClassifier": {"max_iter": 4},
    "HistGradientBoostingRegressor": {"max_iter": 4},
    "GenericUnivariateSelect": {"param": 50},
    "IncrementalPCA": {"n_components": 3},
    "KBinsDiscretizer": {"n_bins": 3, "encode": "onehot-dense"},
    "KNeighborsTransformer": {"mode": "distance"},
    "KernelPCA": {"n_components": 3, "kernel": "rbf"},
    "LocalOutlierFactor": {"novelty": True},
    "MLPClassifier": {"hidden_layer_sizes": (6,), "max_iter": 60},
    "MLPRegressor": {"hidden_layer_sizes": (6,), "max_iter": 60},
    "MultiOutputRegressor": {"estimator": Ridge()},
    "NuSVC": {"nu": 0.3},
    "OneHotEncoder": {"handle_unknown": "ignore", "sparse_output": False},
    "PCA": {"n_components": 3},
    "Pipeline": {"steps": [("a", StandardScaler()), ("b", _LOGISTIC)]},
    "QuantileTransformer": {"n_quantiles": 20},
    "RadiusNeighborsClassifier": {"radius": 9.0},
    "RadiusNeighborsRegressor": {"radius": 9.0},
    "RandomTreesEmbedding": {"sparse_output": False},
    "SGDClassifier": {"loss": "log_loss"},
    "SelectKBest": {"k": 3},
    "SelectPercentile": {"percentile": 50},
    "StackingClassifier": {"estimators": _CLASSIFIERS, "cv": 2},
    "StackingRegressor": {"estimators": _REGRESSORS, "cv": 2},
    "TruncatedSVD": {"n_components": 3},
    "VotingClassifier": {"estimators": _CLASSIFIERS, "voting": "soft", "flatten_transform": False},
    "VotingRegressor": {"estimators": _REGRESSORS},
}
POSITIVE = {"MultinomialNB", "ComplementNB", "GammaRegressor", "PoissonRegressor"}
CODED = {"CategoricalNB", "OneHotEncoder", "OrdinalEncoder", "TargetEncoder"}
#: For two classes alone.
OF_PAIRS = {"GaussianProcessClassifier", "TunedThresholdClassifierCV"}
OPSETS = {"KNNImputer": 18}


def excused(name: str, options: dict[str, Any], feed: str) -> str:
    """Why onnxruntime's answer for this feed is not ours: docs/reference/onnxruntime.md."""
    if options.get("optim") == "cdist" and (feed == "mixed" or feed.endswith("inf")):
        return "CDist takes infinity from infinity"
    if name in ("Normalizer", "TfidfTransformer") and feed == "huge":
        return "squares beyond float32"
    return ""


def fitted(name: str, target: str) -> tuple[Any, Any]:
    """The estimator after training, and new rows for it; skipped where it cannot be trained."""
    kind = ESTIMATORS[name]
    taken = inspect.signature(kind).parameters
    usual = {key: value for key, value in _FEW.items() if key in taken}
    made = kind(**{**usual, **HOW.get(name, {})})
    x, new = (CODES, CODES[:20]) if name in CODED else (X, NEW)
    pairs = {"names": "words", "three": "two"} if name in OF_PAIRS else {}
    y = NUMBER if is_regressor(made) else TARGETS[pairs.get(target, target)]
    if name == "MultiOutputClassifier":
        y = np.stack([y, y[::-1]], axis=1)
    if name == "MultiOutputRegressor" or name.startswith("MultiTask"):
        y = np.stack([NUMBER, X[:, 1] - NUMBER], axis=1)
    if name in POSITIVE:
        x, new, y = np.abs(x), np.abs(new), np.abs(y) if is_regressor(made) else y
    return made.fit(x.astype(np.float32), y), new


def options_of(name: str) -> list[dict[str, Any]]:
    """The options that the converter has, one after another; without ZipMap, if it may be."""
    pool = _converter_pool[build_sklearn_operator_name_map()[ESTIMATORS[name]]]
    allowed = pool.get_allowed_options()
    if not isinstance(allowed, dict):
        return [{}]
    base = {"zipmap": False} if "zipmap" in allowed else {}
    found: list[dict[str, Any]] = [{}, base] if base else [{}]
    for key, values in allowed.items():
        found += [{**base, key: each} for each in values or () if each not in (False, None, "std")]
    return found


def feeds(rows: Any, dtype: Any) -> Iterator[tuple[str, Any]]:
    """Ordinary rows, rows with something odd, and none."""
    rng = np.random.default_rng(3)

    def odd(value: float) -> Any:
        made = rows[:8].copy()
        for row in made[1:]:
            row[rng.integers(0, len(row), rng.integers(1, 3))] = value
        return made

    mixed = odd(np.nan)
    mixed[::2, 0], mixed[1::3, 1] = np.inf, -np.inf
    made = {"rows": rows, "one": rows[:1], "none": rows[:0], "mixed": mixed}
    for name, value in {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}.items():
        made |= {name: odd(value), f"one {name}": odd(value)[1:2]}
        made[f"all {name}"] = np.full((2, rows.shape[1]), value)
    made["huge"] = odd(1e30 if dtype == np.float32 else 1e300)
    for name, data in made.items():
        yield name, data.astype(dtype)


def outcome(session: Any, feed: Any) -> Any:
    """The answers, or what was raised."""
    try:
        return session.run(None, {"X": feed})
    except Exception as problem:  # noqa: BLE001 (of whatever class: it is refused)
        return problem


def plain(value: Any) -> Any:
    """The rows of a ZipMap as their keys and an array; anything else as it is."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [list(row) for row in value], np.array([list(row.values()) for row in value])
    return None, value


def alike(got: Any, want: Any, about: str) -> None:
    """The same outcome, and the same values."""
    if isinstance(want, Exception):
        if about.endswith(" none") and not isinstance(got, Exception):  # see docs
            assert not np.size(got[0]), about
            return
        assert isinstance(got, Exception), f"{about}: {want}, and ours answers {got}"
        return
    assert not isinstance(got, Exception), f"{about}: {got!r}"
    for (keys, ours), (known, theirs) in zip(map(plain, got), map(plain, want), strict=True):
        assert keys == known, about
        if isinstance(theirs, np.ndarray):
            agree(ours, theirs, about, 0.0, WITHIN * largest(theirs))
        else:
            assert len(ours) == len(theirs), about


def hold(name: str, target: str, dtype: Any, options: dict[str, Any]) -> bool:
    """Hold our session to theirs; False where there is no model that onnxruntime loads."""
    estimator, rows = fitted(name, target)
    opset = {"": OPSETS.get(name, 17), "ai.onnx.ml": 3}
    given = {id(estimator): options} if options else None
    try:
        model = to_onnx(estimator, rows[:1].astype(dtype), options=given, target_opset=opset)
        data, quiet = model.SerializeToString(), onnxruntime.SessionOptions()
        quiet.log_severity_level = 4
        theirs = onnxruntime.InferenceSession(data, quiet, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 (skl2onnx cannot write it, or onnxruntime cannot load it)
        return False
    ours = InferenceSession(data, providers=["CPUExecutionProvider"])
    for feed, values in feeds(rows, dtype):
        about = f"{name} {target} {np.dtype(dtype)} {options} {feed}"
        if not excused(name, options, feed):
            alike(outcome(ours, values), outcome(theirs, values), about)
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - ELSEWHERE))
def test_sessions_answer_and_refuse_as_onnxruntime(name: str) -> None:
    """An option or two of each: ZipMap as it is, without, and the last that there is."""
    options = options_of(name)
    asked = [("two", options[0]), ("names", options[-1]), ("two", options[1 % len(options)])]
    held = [hold(name, target, np.float32, how) for target, how in asked[: len(options)]]
    unsupported = ("GaussianProcessClassifier", "HistGradient", "TargetEncoder", "NearestNeighbors")
    assert any(held) or name.startswith(unsupported)


@pytest.mark.soak
def test_all_options_of_all_estimators() -> None:
    count = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted(set(ESTIMATORS) - ELSEWHERE):
            targets = TARGETS if issubclass(ESTIMATORS[name], ClassifierMixin) else ["two"]
            for target in targets:
                for options in options_of(name):
                    count += hold(name, target, np.float32, options)
                    count += hold(name, target, np.float64, options)
    assert count > 1_000
