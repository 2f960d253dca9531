"""Models of other versions of scikit-learn: right, or refused, and never in silence."""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import json
import lzma
import pickle
import pickletools
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
import xgboost
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import make_classification
from sklearn.ensemble import AdaBoostClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PowerTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

import flour
import oven
import pretzel
from flour.core.errors import (
    ImportRefused,
    OtherVersion,
    OtherVersionWarning,
    UnfittedEstimator,
    UnknownEstimator,
    UnsupportedSetting,
)
from flour.sklearn import skops_file, versions
from flour.sklearn.file import read_as_data
from flour.sklearn.importer import version_caveat
from runtime.repository import formats
from runtime.verify import verify
from tests.flour.old_models.make import FOLDER, ROWS, TOWNS, WORDS

ANSWERS: dict[str, dict[str, Any]] = json.loads((FOLDER / "answers.json").read_text())
HERE = sklearn.__version__
X, Y = make_classification(60, 4, n_classes=3, n_informative=3, n_redundant=0, random_state=0)
OUTPUTS = {"predict": ("label", "value"), "predict_proba": ("probabilities",)}
OUTPUTS["transform"] = ("features",)

#: Models whose attributes say how the version that trained them answers.
IN_MEMORY = [
    *("0.24.2-ovr.pkl", "1.6.1-ovr.pkl", "1.7.2-liblinear.pkl", "1.7.2-ovr_cv.pkl"),
    *("1.7.2-multinomial2.pkl", "1.3.2-tree.pkl", "1.3.2-forest.joblib", "1.3.2-bagged.joblib"),
    *("1.3.2-vote.joblib", "1.3.2-samme_r.pkl", "1.5.2-samme_r.pkl", "1.3.2-pls.pkl"),
]


def read(name: str) -> Any:
    return read_as_data((FOLDER / name).read_bytes(), name)


def unpickled(name: str) -> Any:
    """As a caller reads it, who looks away from scikit-learn's warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return joblib.load(io.BytesIO((FOLDER / name).read_bytes()))


def check(name: str, program: flour.Flow) -> None:
    """Hold a program's answers against those of the version that trained the model."""
    rows = {"words.pkl": WORDS, "towns.pkl": TOWNS}.get(name.partition("-")[2], ROWS)
    made = oven.bake(program).run(rows)
    for method, outputs in OUTPUTS.items():
        for output in set(outputs) & set(made) if method in ANSWERS[name] else ():
            want = np.asarray(ANSWERS[name][method])
            got = made[output].toarray() if hasattr(made[output], "toarray") else made[output]
            np.testing.assert_allclose(np.reshape(got, want.shape), want, rtol=1e-9, atol=1e-12)


def test_every_file_is_looked_at() -> None:
    assert {*ANSWERS} == {
        each.name for each in FOLDER.iterdir() if each.suffix in (".pkl", ".joblib")
    }


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answers_are_those_of_the_version_that_trained(name: str) -> None:
    version = name.partition("-")[0]
    sample = ROWS if "coded" in name else TOWNS if "towns" in name else None
    with pytest.warns(OtherVersionWarning, match=f"scikit-learn {version}, installed is {HERE}"):
        check(name, flour.from_sklearn(read(name), sample))
    assert all(hasattr(read(name), each) for each in {"predict_proba"} & {*ANSWERS[name]})


@pytest.mark.parametrize("name", IN_MEMORY)
def test_of_an_estimator_that_the_caller_has_read_attributes_tell_it(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OtherVersionWarning)
        check(name, flour.from_sklearn(unpickled(name)))


@pytest.mark.parametrize(
    "name", ["0.24.2-right.joblib", "1.7.2-right.joblib", "1.3.2-numbers.joblib"]
)
def test_an_estimator_that_the_caller_has_read_shows_it_by_its_parameters(name: str) -> None:
    with pytest.warns(OtherVersionWarning, match=f"another version.*{HERE}"):
        flour.from_sklearn(unpickled(name))


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("1.3.2-pls.pkl", lambda fit: fit.fit(X, X @ [1.0, 2.0, 3.0, 4.0])),
        ("1.7.2-multinomial2.pkl", lambda fit: fit.fit(X, Y)),
        ("1.7.2-ovr.pkl", lambda fit: fit.fit(X, Y)),
    ],
)
def test_fitted_again_it_is_not_refused(name: str, again: Callable[[Any], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = again(unpickled(name))
        program = flour.from_sklearn(fitted)
        wanted = fitted.predict(X)
    made = oven.bake(program).run(X)
    label = made["value"] if "value" in made else made["label"]
    np.testing.assert_allclose(label, wanted, rtol=1e-9)


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        LogisticRegressionCV(
            Cs=2, cv=2, use_legacy_attributes=False, l1_ratios=(0.0,), scoring="accuracy"
        ),
        DecisionTreeClassifier(class_weight="balanced", max_depth=3),
        RandomForestClassifier(3, class_weight="balanced"),
        AdaBoostClassifier(n_estimators=2),
        PLSRegression(2, scale=False),
        OneVsRestClassifier(DecisionTreeClassifier(max_depth=2)),
    ],
)
def test_a_model_of_the_installed_version_is_told_nothing_of(estimator: Any) -> None:
    fitted = make_pipeline(StandardScaler(), estimator).fit(X, Y)
    kept = io.BytesIO()
    joblib.dump(fitted, kept)
    for each in (fitted, read_as_data(kept.getvalue())):
        assert not version_caveat(each)
        assert flour.from_sklearn(each).outputs


def test_weights_of_rows_are_shares_in_the_installed_version() -> None:
    weights = np.where(np.arange(60) % 7 == 0, 0.0, np.arange(60) / 9.0)
    two = np.c_[Y, Y > 0]
    for fitted in (
        DecisionTreeClassifier().fit(X, Y, weights),
        DecisionTreeClassifier().fit(X, Y, weights / weights.sum()),
        DecisionTreeClassifier(max_depth=3).fit(X, two, weights),
        DecisionTreeClassifier().fit(X, np.zeros(60)),
    ):
        assert flour.from_sklearn(fitted).outputs


def test_the_installed_version_is_not_asked_for_another() -> None:
    old = read("1.7.2-right.joblib")
    with pytest.warns(OtherVersionWarning, match="1.7.2"):
        plan = oven.bake(flour.from_sklearn(old))
    with pytest.raises(OtherVersion, match=r"written by scikit-learn 1\.7\.2"):
        verify(plan, old, ROWS)
    fitted = unpickled("1.7.2-right.joblib")
    with pytest.warns(OtherVersionWarning) as said:
        pretzel.compile(fitted, verify=ROWS)
    assert any("verifying asks the installed version" in str(each.message) for each in said)


def test_a_pickle_of_xgboost_names_its_version() -> None:
    kept = pickle.dumps(xgboost.XGBClassifier(n_estimators=2).fit(X, Y))
    numbers = [int(each) for each in versions.xgboost_in(kept).split(".")]
    mark = b"version[#L" + b"\0" * 7 + b"\3"
    here, there = (b"".join(b"i" + bytes([n]) for n in each) for each in (numbers, (2, 0, 3)))
    assert mark + here in kept
    assert versions.xgboost_in(kept) == xgboost.__version__
    old = kept.replace(mark + here, mark + there)
    for data in (old, gzip.compress(old)):
        assert flour.from_sklearn(read_as_data(data)).outputs
        assert formats.written_by("sklearn", data)["xgboost"] == "2.0.3"
    older = b'xgboost.core{"version":[1,3,3]}'
    assert versions.xgboost_in(older) == "1.3.3"
    assert versions.xgboost_in(b'{"version":[1,3,3]}') == ""


def test_a_constant_column_that_was_divided_by_rounding() -> None:
    """As scikit-learn 0.24 fitted it: what is left of x - mean is rounding, too."""
    fitted = PowerTransformer().fit(np.c_[X, np.ones(60)])
    assert flour.from_sklearn(fitted).outputs
    fitted._scaler.scale_[-1], fitted._scaler.mean_[-1] = 4e-15, 3.8
    with pytest.raises(UnsupportedSetting, match="divided by a rounding error"):
        flour.from_sklearn(fitted)


def test_the_estimator_of_a_caller_is_not_changed() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):  # the second one is taken apart, the third one read so
            old = unpickled("1.2.2-spline.joblib")
            before = {*vars(old)}
            assert oven.bake(flour.from_sklearn(old)).run(ROWS)["features"].shape == (12, 15)
            assert {*vars(old)} == before


def test_skl2onnx_is_no_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strange(LogisticRegression):  # type: ignore[misc,unused-ignore]  # has no types
        """A class without an adapter."""

    fitted = Strange().fit(X, Y)
    vars(fitted)[versions.KEY] = "1.5.2"
    asked = list[object]()
    monkeypatch.setattr("flour.sklearn.fallback.through_onnx", lambda *of: asked.append(of))
    with pytest.warns(OtherVersionWarning, match="1.5.2"), pytest.raises(UnknownEstimator):
        flour.from_sklearn(fitted, sample=X[:5])
    assert not asked


# --- what answers otherwise since a version ------------------------------------------------------

SIGNED = np.array([[-1.0, 2.0, -4.0], [-1.0, -2.0, -4.0], [0.0, -1.0, -2.0], [1e-17, 0.0, -1e-16]])
LARGEST = SIGNED.max(axis=1, keepdims=True)
EDGES = KBinsDiscretizer(4, encode="ordinal", strategy="uniform").fit([[0.0], [4.0]])
HAIRS = np.array([[0.99999], [0.9999], [3 - 2e-5], [2 - 1e-9], [np.float32(1 - 1e-7)], [5.0]])
RARE = OneHotEncoder(handle_unknown="warn", min_frequency=2, sparse_output=False)
FAR = SGDClassifier(loss="log_loss", random_state=0).fit(X, Y)
FAR.coef_, FAR.intercept_ = FAR.coef_ * 0, np.array([-800.0, -900.0, -1000.0])
#: By version, an estimator, rows, and what that version answers; the installed one differs.
SINCE = [
    ("0.22.2", Normalizer("max").fit(SIGNED), SIGNED, SIGNED / np.where(LARGEST, LARGEST, 1.0)),
    ("0.24.2", Normalizer("l1").fit(SIGNED), SIGNED, SIGNED / np.abs(SIGNED).sum(1)[:, None]),
    ("1.0.2", EDGES, HAIRS, [[1.0], [0.0], [3.0], [2.0], [1.0], [3.0]]),
    ("1.0.2", EDGES, HAIRS.astype("f4"), [[1.0], [0.0], [3.0], [2.0], [1.0], [3.0]]),
    ("1.7.2", RARE.fit([["a"], ["a"], ["b"]]), [["a"], ["x"]], [[1.0, 0.0], [0.0, 0.0]]),
    ("1.8.0", FAR, X[:2], np.full((2, 3), np.nan)),
]


@pytest.mark.parametrize(("version", "fitted", "rows", "wanted"), SINCE)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:invalid value:RuntimeWarning")
def test_what_a_version_changed(version: str, fitted: Any, rows: Any, wanted: Any) -> None:
    sample = np.array(rows, object) if isinstance(rows[0][0], str) else rows
    ask = getattr(fitted, "predict_proba", None) or fitted.transform
    output = "probabilities" if ask.__name__ == "predict_proba" else "features"
    now = np.asarray(ask(rows))
    assert not np.array_equal(now, wanted)
    for writer, answer in (("", now), (version, wanted)):
        old = copy.deepcopy(fitted)
        vars(old)[versions.KEY] = writer
        plan = oven.bake(flour.from_sklearn(old, sample))
        for run in (plan.run, plan.wait().run):
            np.testing.assert_allclose(run(sample)[output], answer, rtol=1e-12)


# --- refused: the version, the reason, and what helps --------------------------------------------


class Stranger(StandardScaler):  # type: ignore[misc,unused-ignore]  # has no types
    """A class of one's own."""


class Outsider:
    """A class without fit."""


STRANGE = make_pipeline(Stranger()).fit(X)


@pytest.mark.parametrize(
    ("estimator", "version", "said"),
    [
        (Outsider(), HERE, "Outsider cannot be imported: the file has only.*trust_pickle"),
        (STRANGE, HERE, "Stranger cannot be imported.*trust_pickle"),
        (STRANGE, "0.9", r"Stranger .*by scikit-learn 0\.9, .*0\.22 and later.*write ONNX"),
        (FunctionTransformer(np.linalg.norm).fit(X), HERE, "norm is Python code: the file was"),
    ],
    ids=["no fit", "own class", "old", "function"],
)
@pytest.mark.filterwarnings("ignore::flour.core.errors.OtherVersionWarning")
def test_what_a_file_only_names(estimator: Any, version: str, said: str) -> None:
    raw = pickle.dumps(estimator, protocol=0)
    old = raw.replace(f"V{HERE}\n".encode(), f"V{version}\n".encode())
    with pytest.raises(ImportRefused, match=f"(?s){said}"):
        flour.from_sklearn(read_as_data(old))


def test_files_of_skops_are_never_unpickled() -> None:
    with pytest.raises(ImportRefused, match=r"skops\.io\.load") as refused:
        skops_file.from_skops(pickle.dumps(STRANGE), X[:3])  # read as data, like one of skops
    assert "trust_pickle" not in str(refused.value)


def test_line_ends_of_another_system() -> None:
    raw = pickle.dumps(STRANGE, protocol=0).replace(b"\n", b"\r\n")
    with pytest.raises(ImportRefused, match="its line ends were changed"):
        read_as_data(raw)


# --- unfitted, or of another version -------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [StandardScaler(), TfidfVectorizer(), CalibratedClassifierCV(), LogisticRegression()],
)
def test_what_was_never_fitted_is_told_so(estimator: Any) -> None:
    with pytest.raises(UnfittedEstimator):
        flour.from_sklearn(estimator, sample=["a b"] if "Tfidf" in str(estimator) else X[:5])


def test_what_another_version_never_fitted_is_told_so() -> None:
    never = read_as_data(pickle.dumps(LogisticRegression()))
    vars(never)["_sklearn_version"] = "1.2.2"
    with pytest.warns(OtherVersionWarning), pytest.raises(UnfittedEstimator, match="not fitted"):
        flour.from_sklearn(never, X[:5])


def test_what_was_fitted_and_lacks_an_attribute_is_not_called_unfitted() -> None:
    fitted = MinMaxScaler().fit(X)
    del fitted.min_
    with pytest.raises(OtherVersion, match="no attribute 'min_'") as refused:
        flour.from_sklearn(make_pipeline(fitted))
    assert "step 'minmaxscaler'" in str(refused.value)


# --- the version in a file -----------------------------------------------------------------------


def _pickled(version: str, protocol: int) -> bytes:
    fitted = make_pipeline(StandardScaler()).fit(X)
    raw = pickle.dumps(fitted, protocol=protocol)
    assert sum(op.name == "STOP" for op, _, _ in pickletools.genops(raw)) == 1
    shown = HERE.encode()
    assert len(version) == len(HERE)
    assert shown in raw
    return raw.replace(shown, version.encode())


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "packed", [bytes, zlib.compress, gzip.compress, bz2.compress, lzma.compress]
)
def test_the_version_is_read_without_unpickling(
    protocol: int, packed: Callable[[bytes], bytes]
) -> None:
    assert versions.version_in(packed(_pickled("0.9.7", protocol))) == "0.9.7"
    alone = lzma.compress(_pickled("1.2.3", protocol), format=lzma.FORMAT_ALONE)
    assert versions.version_in(alone) == "1.2.3"


@pytest.mark.parametrize(
    "compress", [0, ("zlib", 3), ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3)]
)
def test_arrays_between_do_not_hide_it(compress: Any) -> None:
    model = make_pipeline(StandardScaler(), DecisionTreeClassifier()).fit(
        np.random.default_rng(0).normal(size=(400, 50)), np.arange(400) % 7
    )
    kept = io.BytesIO()
    joblib.dump([np.arange(10_000.0), model], kept, compress=compress)
    assert versions.version_in(kept.getvalue()) == HERE


@pytest.mark.parametrize("head", [b"", b"x", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"]\0\0", b"PK"])
@pytest.mark.parametrize(
    "rest", [b"", b"\x00" * 50, b"_sklearn_version", b"_sklearn_version\x94\x8c"]
)
def test_a_file_that_says_nothing_or_is_damaged(head: bytes, rest: bytes) -> None:
    assert versions.version_in(head + rest) == ""
    with pytest.raises(ImportRefused, match=r"^(this pickle cannot be read|the file is empty)\n"):
        read_as_data(head + rest, "m.pkl")


def test_much_that_is_packed_is_unpacked_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_MOST_BYTES", 1 << 16)
    packed = zlib.compress(bytes(1 << 22) + _pickled("0.9.7", 4))
    assert versions.version_in(packed) == ""


def test_notes_of_the_caller_say_nothing_of_versions() -> None:
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    fitted.notes, fitted[-1].threshold = "mine", 0.4
    assert not version_caveat(fitted)


def test_an_estimator_with_itself_inside_is_walked_once_in_a_while() -> None:
    fitted = StandardScaler().fit(X)
    fitted.me_ = [fitted, fitted]
    assert not version_caveat(fitted)


def test_a_wrapper_that_lightgbm_2_has_fitted_is_a_model() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    fitted = lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(X, X @ [1.0, 2.0, 0.0, 1.0])
    wanted = fitted.predict(X)
    del fitted.fitted_  # which LightGBM 2 did not set: `booster_` raises
    made = oven.bake(flour.from_sklearn(make_pipeline(fitted), sample=X[:5])).run(X)
    np.testing.assert_allclose(made["value"], wanted, rtol=1e-12)


def test_scores_without_ties_are_answered_of_any_version() -> None:
    fitted = OneVsRestClassifier(LogisticRegression()).fit(X, Y)
    vars(fitted)[versions.KEY] = "1.7.2"
    with pytest.warns(OtherVersionWarning):
        made = oven.bake(flour.from_sklearn(fitted)).run(X)
    assert list(made["label"]) == list(fitted.predict(X))


def test_a_sample_is_not_blamed_for_what_an_estimator_lacks() -> None:
    frame = pd.DataFrame(X, columns=list("abcd"))
    fitted = make_column_transformer((StandardScaler(), ["a"]), remainder="drop").fit(frame)
    del fitted.transformers_
    with pytest.raises(OtherVersion, match="transformers_"):
        flour.from_sklearn(fitted, sample=frame)


def test_coefficients_of_several_targets_stood_the_other_way_round() -> None:
    fitted = PLSRegression().fit(X, np.column_stack((X @ [1.0, 2.0, 0.0, 1.0], X[:, 0])))
    wanted = fitted.predict(X)
    fitted.coef_ = fitted.coef_.T
    np.testing.assert_allclose(oven.bake(flour.from_sklearn(fitted)).run(X)["value"], wanted)
    fitted.coef_ = fitted.coef_ + 1.0
    with pytest.raises(UnsupportedSetting, match="rotations and loadings"):
        flour.from_sklearn(fitted)
