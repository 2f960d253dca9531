"""The drop-in: an estimator's own methods, results, shapes, dtypes and kinds of error."""

from __future__ import annotations

import copy
import pickle
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest, RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import flour
import pretzel
from flour.core.errors import FlourError, UnfittedEstimator, UnknownEstimator
from flour.sklearn.originals import original
from oven import Plan
from oven.explain import explain
from runtime.errors import NotOffered, Unfaithful
from tests.golden import Golden
from tests.house import run_python
from tests.runtime.plans import documents, shift_flow

RNG = np.random.default_rng(3)
X = RNG.normal(size=(120, 5))
Y = np.where(X[:, 0] + X[:, 1] > 0, "good", "bad")
NUMBERS = (X[:, 2] > 0).astype(np.int32)
FRAME = pd.DataFrame({"age": X[:, 0], "city": np.where(X[:, 1] > 0, "Rome", "Oslo")})
TEXTS = documents(30, 8)
METHODS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform")
FACTS = ("classes_", "feature_names_in_", "n_features_in_")

FITTED: dict[str, tuple[Any, Any]] = {
    "logistic": (make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y), X),
    "whole labels": (LogisticRegression().fit(X, NUMBERS), X),
    "three classes": (LogisticRegression().fit(X, np.digitize(X[:, 0], [-0.5, 0.5])), X),
    "forest": (RandomForestClassifier(5, random_state=0).fit(X, Y), X),
    "boosting": (HistGradientBoostingClassifier(max_iter=3).fit(X, NUMBERS), X),
    "two targets": (DecisionTreeClassifier(max_depth=3).fit(X, np.c_[NUMBERS, Y == "bad"]), X),
    "regression": (LinearRegression().fit(X, X[:, 0]), X),
    "two values": (Ridge().fit(X, X[:, :2]), X),
    "transformer": (make_pipeline(StandardScaler(), PCA(2)).fit(X), X),
    "clusters": (KMeans(3, n_init=1, random_state=0).fit(X), X),
    "frame": (
        make_pipeline(
            ColumnTransformer([("n", StandardScaler(), ["age"]), ("c", OneHotEncoder(), ["city"])]),
            LogisticRegression(),
        ).fit(FRAME, Y),
        FRAME,
    ),
    "texts": (make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(TEXTS, Y[:30]), TEXTS),
}


@pytest.fixture(scope="module", params=FITTED)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    estimator, data = FITTED[request.param]
    return estimator, pretzel.compile(estimator, data[:5]), data


def parts(value: Any) -> list[np.ndarray[Any, Any]]:
    made = value if isinstance(value, list) else [value]
    return [np.asarray(each.toarray() if hasattr(each, "toarray") else each) for each in made]


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # theirs, in a logarithm
@pytest.mark.parametrize("method", METHODS)
def test_methods_are_the_estimators(pair: tuple[Any, Any, Any], method: str) -> None:
    estimator, made, data = pair
    assert hasattr(made, method) == hasattr(estimator, method)
    for rows in (1, 2, 30) if hasattr(estimator, method) else ():
        got, want = getattr(made, method)(data[:rows]), getattr(estimator, method)(data[:rows])
        assert isinstance(got, list) == isinstance(want, list)
        for mine, theirs in zip(parts(got), parts(want), strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
            if theirs.dtype.kind in "fc":
                np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
            else:
                np.testing.assert_array_equal(mine, theirs)


LABELS = np.array(["no", "yes", "über-ja", "", "\U0001f600"])


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # theirs, in a logarithm
@pytest.mark.parametrize("method", ["predict", "predict_log_proba"])
def test_converted_answers_are_arrays_of_their_own(method: str) -> None:
    """Labels of fixed width and logarithms: no call changes what an earlier one answered."""
    estimator = DecisionTreeClassifier(max_depth=3).fit(X, LABELS[np.arange(len(X)) % 5])
    made = pretzel.compile(estimator).wait()
    call, theirs = getattr(made, method), getattr(estimator, method)
    wanted = [theirs(X[place : place + 1]) for place in range(40)]
    got = [call(X[place : place + 1]) for place in range(40)]
    assert all(each.flags.owndata for each in got)
    for other in (X.astype(np.float32), X.tolist(), np.asfortranarray(X), X[::-1]):
        got.append(call(other))
        wanted.append(theirs(np.asarray(other)))
    same = np.testing.assert_array_equal
    close = partial(np.testing.assert_allclose, rtol=1e-12)
    for mine, want in zip(got, wanted, strict=True):
        assert mine.dtype == want.dtype
        (close if mine.dtype.kind == "f" else same)(mine, want)


@pytest.mark.parametrize("fact", FACTS)
def test_facts_are_the_estimators(pair: tuple[Any, Any, Any], fact: str) -> None:
    estimator, made, _ = pair
    assert hasattr(made, fact) == hasattr(estimator, fact)
    if hasattr(estimator, fact):
        for mine, theirs in zip(
            np.atleast_1d(getattr(made, fact)), np.atleast_1d(getattr(estimator, fact)), strict=True
        ):
            np.testing.assert_array_equal(mine, theirs)


def with_value(value: float) -> Any:
    made = X[:3].copy()
    made[1, 2] = value
    return made


BAD: dict[str, Any] = {
    "one dimension": X[0],
    "three dimensions": X[None],
    "a column too few": X[:, :4],
    "no rows": X[:0],
    "no rows in a list": [],
    "words": [["a"] * 5],
    "ragged": [[1.0] * 5, [1.0] * 4],
    "not a number": with_value(np.nan),
    "infinity": with_value(-np.inf),
    "nothing": None,
}


@pytest.mark.parametrize("bad", BAD)
def test_what_the_estimator_refuses_is_refused(bad: str, golden: Golden) -> None:
    """Both raise a ValueError; ours says where."""
    estimator, data = FITTED["logistic"]
    made = pretzel.compile(estimator, data[:5])
    with pytest.raises(ValueError):
        estimator.predict(BAD[bad])
    with pytest.raises(ValueError) as caught:
        made.predict(BAD[bad])
    assert isinstance(caught.value, FlourError)
    golden(f"{type(caught.value).__name__}: {caught.value}")


def test_missing_values_are_taken_where_the_estimator_takes_them() -> None:
    estimator, data = FITTED["boosting"]
    made = pretzel.compile(estimator, data[:5])
    np.testing.assert_array_equal(
        made.predict(with_value(np.nan)), estimator.predict(with_value(np.nan))
    )


def test_large_numbers_are_no_infinity() -> None:
    estimator, data = FITTED["regression"]
    made = pretzel.compile(estimator, data[:5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(
            made.predict(with_value(1e200)), estimator.predict(with_value(1e200)), rtol=1e-9
        )


def test_an_attribute_that_is_not_there(golden: Golden) -> None:
    estimator, data = FITTED["regression"]
    made = pretzel.compile(estimator, data[:5])
    with pytest.raises(NotOffered) as caught:
        made.predict_proba(data)
    assert isinstance(caught.value, AttributeError)
    golden(str(caught.value))
    with pytest.raises(AttributeError):
        _ = made.coef_
    with pytest.raises(FlourError):
        pretzel.compile(LinearRegression())
    with pytest.raises(NotFittedError):
        LinearRegression().predict(data)


def test_verifying_accepts_what_is_right(pair: tuple[Any, Any, Any]) -> None:
    estimator, _, data = pair
    pretzel.compile(estimator, data[:5], verify=data)


class Wrong(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """Answers as another estimator, but for some rows."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def predict(self, rows: Any) -> Any:
        """One label is another one."""
        made = self.inner.predict(rows)
        made[3] = "bad" if made[3] == "good" else "good"
        return made

    def predict_proba(self, rows: Any) -> Any:
        """Two rows are off by a little."""
        made = self.inner.predict_proba(rows)
        made[[2, 7], 0] += 1e-6
        return made


MIXED = pd.DataFrame({"a": [1.0, 2, 3], "age": [1.0, np.nan, 4], "vip": [True, False, True]})


@pytest.mark.parametrize(
    ("transformer", "rows"),
    [
        (OneHotEncoder(), FRAME[["city"]]),
        (TfidfVectorizer(), ["de ab", "bc de", "bc"]),
        (make_pipeline(SimpleImputer(), OneHotEncoder()), np.digitize(X, [0.0])),
        (ColumnTransformer([("a", StandardScaler(), ["a"])], remainder="passthrough"), MIXED),
    ],
)
def test_verifying_knows_sparse_rows_and_objects(transformer: Any, rows: Any) -> None:
    pretzel.compile(transformer.fit(rows), verify=rows)


def test_verifying_compares_numbers_in_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = ColumnTransformer([("a", StandardScaler(), ["a"])], remainder="passthrough").fit(MIXED)
    right = fitted.transform(MIXED)
    monkeypatch.setattr(fitted, "transform", lambda _: right + np.eye(3) * 0.001)
    with pytest.raises(Unfaithful, match="does not answer"):
        pretzel.compile(fitted, verify=MIXED)


def test_rows_to_verify_are_the_sample_only_where_one_is_needed() -> None:
    """Their dtypes are not those of the rows to come."""
    fitted = LogisticRegression().fit(X, Y)
    for rows in (X[:5].astype(np.float32), [[1, 2, 3, 4, 5]]):
        (kind,) = pretzel.compile(fitted, verify=rows).plan.inputs.values()
        assert kind == flour.Vector(5)
    own = make_pipeline(FunctionTransformer(lambda x: x / 2), LogisticRegression()).fit(X, Y)
    assert pretzel.compile(own, verify=X, allow_python=True).predict(X[:1]) == own.predict(X[:1])


def test_single_rows_share_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pretzel.compile(LogisticRegression().fit(X, Y))
    first = model.run(X[0])
    monkeypatch.setattr(type(model.plan), "entry", None)
    np.testing.assert_equal(model.run(X[0]), first)


@pytest.mark.parametrize("labels", [["b", "a", "c"], [7, -1, 3]], ids=["texts", "numbers"])
def test_probabilities_of_onnx_by_label_are_verified(labels: list[Any]) -> None:
    onnx = pytest.importorskip("onnx")
    from skl2onnx import to_onnx

    rows = X.astype(np.float32)
    classes = np.digitize(X[:, 0], [-0.5, 0.5])
    model = to_onnx(LogisticRegression().fit(rows, classes), rows[:1])
    (zipmap,) = (node for node in model.graph.node if node.op_type == "ZipMap")
    kind = "strings" if isinstance(labels[0], str) else "int64s"
    del zipmap.attribute[:]
    zipmap.attribute.append(onnx.helper.make_attribute(f"classlabels_{kind}", labels))
    if kind == "strings":
        output = next(each for each in model.graph.output if each.name == zipmap.output[0])
        output.type.sequence_type.elem_type.map_type.key_type = onnx.TensorProto.STRING
    made = original("onnx", model.SerializeToString())(rows)
    own = pretzel.compile(model, verify=rows).run(rows)
    np.testing.assert_allclose(made["output_probability"], own["output_probability"], rtol=1e-5)


def test_verifying_refuses_a_mismatch(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    estimator, data = FITTED["logistic"]
    flow = flour.from_sklearn(estimator)
    monkeypatch.setattr(flour, "from_sklearn", lambda *_, **__: flow)
    with pytest.raises(Unfaithful) as caught:
        pretzel.compile(Wrong(copy.deepcopy(estimator)), verify=data)
    golden(str(caught.value))


def test_all_outputs_of_a_frame_are_read_as_its_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator, data = FITTED["frame"]
    model = pretzel.compile(estimator, data[:5]).wait()
    monkeypatch.setattr(Plan, "answer", lambda *_: pytest.fail("the entry does not take it"))
    for rows in (data, data[:1]):
        assert model.run(rows)["label"].tolist() == estimator.predict(rows).tolist()


def test_a_compiled_estimator_cannot_be_pickled_and_says_what_can() -> None:
    estimator, data = FITTED["logistic"]
    made = pretzel.compile(estimator, data[:5])
    with pytest.raises(TypeError, match=r"model\.save\(path\)"):
        pickle.dumps(made)
    assert copy.copy(made) is copy.deepcopy(made) is made


class Doubled(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """A transformer that nothing here knows."""

    def fit(self, rows: Any, target: Any = None) -> Doubled:
        """Learn nothing."""
        self.n_features_in_ = rows.shape[1]
        return self

    def transform(self, rows: Any) -> Any:
        """Twice the numbers."""
        return np.asarray(rows) * 2.0


def test_a_transformer_of_the_users_own_is_a_python_stage_where_allowed() -> None:
    estimator = make_pipeline(Doubled(), LogisticRegression()).fit(X, NUMBERS > 0)
    with pytest.raises(UnknownEstimator, match="allow_python=True"):
        pretzel.compile(estimator, X[:5])
    made = pretzel.compile(estimator, X[:5], verify=X, allow_python=True)
    np.testing.assert_array_equal(made.predict(X), estimator.predict(X))
    assert "Python" in explain(made.plan)


@pytest.mark.parametrize("opened", ["load", "compile"])
def test_a_file_may_be_written_over_while_its_model_answers(opened: str, tmp_path: Path) -> None:
    """In a process of its own: this one has the arrays already, and a mapping would end it."""
    trained = np.random.default_rng(9).normal(size=(4000, 5))
    fit, path = KNeighborsRegressor(3).fit(trained, trained[:, 0]), tmp_path / "a.pretzel"
    pretzel.compile(fit).save(path)
    answers, rows = tmp_path / "answers.npy", tmp_path / "rows.npy"
    np.save(rows, X)
    code = f"""
import numpy as np, pretzel
model = pretzel.{opened}({str(path)!r})
open({str(path)!r}, "wb").write(b"short")
np.save({str(answers)!r}, model.predict(np.load({str(rows)!r})))
"""
    run_python(code)
    np.testing.assert_allclose(np.load(answers), fit.predict(X), rtol=1e-12)


@pytest.mark.parametrize("rows", [{}, {"sample": X[:3]}, {"verify": X}], ids=["", "sample", "rows"])
@pytest.mark.parametrize(
    "estimator", [RandomForestClassifier(), IsolationForest(), LogisticRegression()], ids=repr
)
def test_an_estimator_that_is_not_fitted_is_refused(estimator: Any, rows: dict[str, Any]) -> None:
    with pytest.raises(UnfittedEstimator, match=r"call fit\(\)"):
        pretzel.compile(estimator, **rows)


def test_programs_compile_too() -> None:
    made = pretzel.compile(shift_flow(1.0))
    assert made.outputs == ("moved", "top")
    np.testing.assert_array_equal(made.plan.run(X[:, :4])["moved"], X[:, :4] + 1.0)


IMPUTED = ColumnTransformer([("i", SimpleImputer(), [0, 1]), ("n", "passthrough", [2, 3, 4])])
WITH_HOLES: dict[str, Any] = {
    "imputer": make_pipeline(SimpleImputer(), Ridge()),
    "imputer of two columns": make_pipeline(IMPUTED, LogisticRegression()),
    "scaler and boosting": make_pipeline(
        StandardScaler(), HistGradientBoostingClassifier(max_iter=3)
    ),
    "scaler": StandardScaler(),
    "linear": LogisticRegression(),
    "forest": RandomForestClassifier(5, random_state=0),
    "projection": PCA(2),
}


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("name", WITH_HOLES)
def test_missing_values_are_refused_where_the_original_refuses_them(
    name: str, value: float
) -> None:
    original = WITH_HOLES[name].fit(X, NUMBERS)
    method = "predict" if hasattr(original, "predict") else "transform"
    fast = getattr(pretzel.compile(original, X[:5]), method)
    for column in range(X.shape[1]):
        rows = X[:4].copy()
        rows[2, column] = value
        try:
            want = getattr(original, method)(rows)
        except ValueError:
            with pytest.raises(FlourError, match=rf"refuses (NaN|infinity)\n.*\$\[2\]\[{column}\]"):
                fast(rows)
        else:
            np.testing.assert_allclose(fast(rows), want, rtol=1e-9)


@pytest.mark.parametrize("kind", ["XGBClassifier", "XGBRegressor"])
def test_xgboost_answers_no_rows(kind: str) -> None:
    xgboost = pytest.importorskip("xgboost")
    original = getattr(xgboost, kind)(n_estimators=3).fit(X, NUMBERS)
    expected, found = original.predict(X[:0]), pretzel.compile(original).predict(X[:0])
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
