"""Every estimator that docs/reference/coverage.md calls native is imported, run and compared."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 (the import enables it)
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression
from sklearn.utils._test_common.instance_generator import _construct_instances

import flour
from tests.estimators import check
from tests.house import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

from coverage_page import NATIVE, PLANNED, REFUSED, TEXT, page, rows

ROWS = rows()
rng = np.random.default_rng(4)
X = rng.uniform(0.2, 2.0, size=(60, 4)).round(3)
SCORE = X @ [1.0, -1.0, 0.5, 0.25] + 0.1 * rng.normal(size=60)
WORDS = ["one two", "two three", "three one one", "", "two"] * 12
TARGETS: dict[str, Any] = {
    "values": SCORE + 2,
    "several": np.stack([SCORE, -SCORE, X[:, 0]], axis=1),
    "classes": np.digitize(SCORE, np.quantile(SCORE, [0.4, 0.7])),
    "two": (np.median(SCORE) < SCORE).astype(int),
    "flags": np.stack([np.median(SCORE) < SCORE, X[:, 0] > 1], axis=1).astype(int),
}
#: What an estimator is fitted on where it is not rows of numbers and classes or values.
DATA: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(("CCA", "PLSCanonical", "PLSRegression", "PLSSVD"), (X, TARGETS["several"])),
    **dict.fromkeys(
        ("MultiTaskElasticNet", "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV"),
        (X, TARGETS["several"]),
    ),
    **dict.fromkeys(("MultiOutputRegressor", "RegressorChain"), (X, TARGETS["several"])),
    **dict.fromkeys(("MultiOutputClassifier", "ClassifierChain"), (X, TARGETS["flags"])),
    **dict.fromkeys(
        ("FixedThresholdClassifier", "TunedThresholdClassifierCV"), (X, TARGETS["two"])
    ),
    **dict.fromkeys(("LabelEncoder", "LabelBinarizer"), (TARGETS["classes"], None)),
    "CategoricalNB": ((X * 2).astype(int), TARGETS["classes"]),
    **dict.fromkeys(TEXT, (WORDS, None)),
    "IsotonicRegression": (X[:, 0], TARGETS["values"]),
    "KernelCenterer": (X @ X.T, None),
}
#: Settings that translate exactly, where the usual ones are refused or are too much for a test.
SETTINGS: dict[str, dict[str, Any]] = {
    "DictionaryLearning": {"transform_algorithm": "omp"},
    "DummyClassifier": {"strategy": "prior"},
    "FeatureHasher": {"input_type": "string", "n_features": 16},
    "HashingVectorizer": {"n_features": 16},
    "LocalOutlierFactor": {"novelty": True},
    "MiniBatchDictionaryLearning": {"transform_algorithm": "omp"},
    "RadiusNeighborsClassifier": {"outlier_label": 0},
    "SparseCoder": {"dictionary": np.eye(4)[:3] + 0.1, "transform_algorithm": "omp"},
}
#: The distance to a point that is a centre is rounding error, and differs by its square root.
TOLERANCE = {"Birch": 1e-7}
#: What the library answers with one dimension for one row.
FLAT = ("SparsePCA", "MiniBatchSparsePCA")


def made(module: str, name: str) -> Any:
    """An unfitted estimator with settings that suit small data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sklearn.experimental import enable_halving_search_cv  # noqa: F401 (importing enables)

        kind = getattr(importlib.import_module(module), name)
        if name == "FrozenEstimator":
            return kind(LogisticRegression().fit(X, TARGETS["classes"]))
        made = next(iter(_construct_instances(kind)))
        # The same fit in every run: an estimator that draws its codes at random may draw ties.
        seed = {"random_state": 0} if "random_state" in made.get_params(deep=False) else {}
        return made.set_params(**seed, **SETTINGS.get(name, {}))


def reshape(estimator: Any) -> None:
    """Give one row's answer the shape that every other number of rows gets."""
    transform = estimator.transform
    estimator.transform = lambda x: np.reshape(transform(x), (len(x), -1))


def target(estimator: Any) -> Any:
    """Classes for what classifies, values for what does not."""
    kind = estimator.__sklearn_tags__().estimator_type
    return TARGETS["values"] if kind == "regressor" else TARGETS["classes"]


# Words are no array, which `check` could cut into blocks: hashed words have a test of their own.
PAIRS = ("DictVectorizer", "FeatureHasher")
NAMES = [(row.module, row.name) for row in ROWS if row.status == NATIVE if row.name not in PAIRS]


def test_hashed_words_answer_as_the_library() -> None:
    words = [text.split() for text in WORDS]
    program = flour.from_sklearn(made("sklearn.feature_extraction", "FeatureHasher"), words)
    want = FeatureHasher(n_features=16, input_type="string").transform(words)
    np.testing.assert_array_equal(program.reference(words)["features"].toarray(), want.toarray())


@pytest.mark.filterwarnings("ignore")  # training is short on purpose
@pytest.mark.parametrize(("module", "name"), NAMES, ids=[name for _, name in NAMES])
def test_what_is_called_native_answers_as_the_library(module: str, name: str) -> None:
    estimator = made(module, name)
    data, wanted = DATA.get(name, (X, None))
    wanted = target(estimator) if wanted is None and data is X else wanted
    with np.errstate(all="ignore"):
        estimator.fit(data, wanted) if wanted is not None else estimator.fit(data)
    if name in FLAT:
        reshape(estimator)
    check(estimator, data, sample=data, narrow=False, tolerance=TOLERANCE.get(name, 1e-9))


def test_every_estimator_has_a_status_and_a_reason() -> None:
    assert {row.status for row in ROWS} <= {NATIVE, PLANNED, REFUSED}
    assert [row.name for row in ROWS if row.status != NATIVE and not row.note] == []
    assert len({(row.module, row.name) for row in ROWS}) == len(ROWS)


def test_there_is_more_than_was_promised() -> None:
    """Eighty native estimators besides text and trees."""
    others = [
        row
        for row in ROWS
        if row.status == NATIVE
        if row.module != "sklearn.feature_extraction.text"
        if not any(word in row.name for word in ("Tree", "Forest", "Boosting"))
    ]
    assert len(others) >= 80


def test_the_page_counts_right() -> None:
    text = page()
    native = sum(row.status == NATIVE for row in ROWS)
    assert f"| **all** | **{native}** |" in text
    assert text.count("\n| `") == len(ROWS)
