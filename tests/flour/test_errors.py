"""Bad input of every kind: its own class, and a message that says what, where, found and hint."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import GenericUnivariateSelect
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, StandardScaler

import flour
import oven
from flour.core import errors
from flour.core.errors import FlourError
from tests.golden import Golden

X = np.arange(12.0).reshape(4, 3) ** 2
FRAME = pd.DataFrame(X, columns=["age", "fare", "city"])
TWO = [0, 1, 0, 1]


class Homemade(BaseEstimator):  # type: ignore[misc]  # sklearn is untyped
    """An estimator that nobody else has."""

    def fit(self, X: Any, y: Any = None) -> Homemade:
        """Learn nothing."""
        self.n_features_in_ = np.shape(X)[1]
        return self

    def transform(self, X: Any) -> Any:
        """Do nothing."""
        return X


def fitted() -> flour.Flow:
    """A program fitted on an array."""
    return flour.from_sklearn(make_pipeline(StandardScaler(), LinearRegression()).fit(X, TWO))


def named() -> flour.Flow:
    """A program fitted on a frame."""
    return flour.from_sklearn(make_pipeline(StandardScaler(), LinearRegression()).fit(FRAME, TWO))


def run(program: flour.Flow, data: Any) -> Callable[[], Any]:
    """Something that runs the program on bad data."""
    return lambda: program.reference(data)


def bring(estimator: Any, sample: Any = None) -> Callable[[], Any]:
    """Something that imports a bad estimator."""
    return lambda: flour.from_sklearn(estimator, sample)


def mixed(value: Any) -> Any:
    """Rows of objects with a bad one in the middle."""
    rows = X.astype(object)
    rows[2, 1] = value
    return rows


ages = flour.record("people", {"age": flour.Scalar(), "city": flour.Category()})
pair = flour.outputs(a=flour.vector("a", 1), b=flour.vector("b", 1))

DATA: dict[str, tuple[type[FlourError], Callable[[], Any]]] = {
    "too wide": (errors.WidthMismatch, run(fitted(), np.ones((2, 4)))),
    "too wide and sparse": (errors.WidthMismatch, run(fitted(), sparse.csr_matrix((2, 5)))),
    "too narrow by position": (errors.WidthMismatch, run(named(), np.ones((2, 2)))),
    "one dimension": (errors.NotRectangular, run(fitted(), np.ones(3))),
    "three dimensions": (errors.NotRectangular, run(fitted(), np.ones((2, 3, 1)))),
    "no dimension": (errors.NotRectangular, run(fitted(), 5.0)),
    "nothing at all": (errors.NotRectangular, run(fitted(), None)),
    "ragged lists": (errors.NotRectangular, run(fitted(), [[1, 2, 3], [4, 5, 6], [7, 8]])),
    "a row that is a number": (errors.NotRectangular, run(fitted(), [[1, 2, 3], 4])),
    "a list in the place of a value": (errors.NotRectangular, run(fitted(), [[1, 2, [3]]])),
    "a record's row that is a number": (errors.NotRectangular, run(named(), [[1, 2], 3])),
    "a list with a document": (errors.WrongDtype, run(flour.text().lower(), [["a document"]])),
    "a list among documents": (errors.WrongDtype, run(flour.text().lower(), ["a", ["b"]])),
    "a string in objects": (errors.NotNumeric, run(fitted(), mixed("12 euros"))),
    "a list in objects": (errors.NotNumeric, run(fitted(), mixed([1]))),
    "strings for numbers": (errors.NotNumeric, run(fitted(), [["1", "2", "3"]])),
    "dates for numbers": (errors.WrongDtype, run(fitted(), X.astype("datetime64[s]"))),
    "complex for numbers": (errors.WrongDtype, run(fitted(), X + 1j)),
    "a column is missing": (errors.MissingColumn, run(named(), FRAME[["age", "city"]])),
    "a column is misspelt": (errors.MissingColumn, run(named(), FRAME.rename(columns=str.upper))),
    "a key is missing": (errors.MissingColumn, run(named(), [{"age": 1, "fare": 2}])),
    "columns of two lengths": (errors.NotRectangular, run(ages, {"age": [1], "city": ["a", "b"]})),
    "numbers for strings": (errors.WrongDtype, run(ages, {"age": [1.0], "city": [3.0]})),
    "a number among strings": (errors.WrongDtype, run(ages, {"age": [1.0], "city": ["a", 3]})),
    "a string among numbers": (errors.NotNumeric, run(ages, {"age": [1, "x"], "city": ["a", "b"]})),
    "an input is missing": (errors.MissingColumn, run(pair, {"a": [[1.0]]})),
    "inputs without names": (errors.InputError, run(pair, [[1.0, 2.0]])),
    "inputs of two lengths": (errors.NotRectangular, run(pair, {"a": [[1]], "b": [[1], [2]]})),
    "one document": (errors.WrongDtype, run(flour.text().lower(), "a document")),
    "no text": (errors.NotDecodable, run(flour.text("t", "utf-8").lower(), [b"caf\xe9"])),
    "no document": (errors.WrongDtype, run(flour.text().lower(), ["a document", None])),
    "documents for words": (errors.WrongDtype, run(flour.tokens().phrases(), ["a document"])),
    "too large a number": (errors.WrongDtype, run(flour.category("n", "int8"), [1, 300])),
    "one more than fits": (errors.WrongDtype, run(flour.category("n", "int64"), [1, 2.0**63])),
    "no whole number": (errors.WrongDtype, run(flour.category("n", "int64"), [1, np.nan])),
    "neither true nor false": (errors.WrongDtype, run(flour.category("n", "bool"), [1, 2])),
    "a matrix for one number a row": (errors.NotRectangular, run(flour.scalar("n"), X)),
    "one-dimensional and sparse": (errors.NotRectangular, run(fitted(), sparse.coo_array(X[0]))),
    "one value for a column": (errors.NotRectangular, run(fitted(), {"a": 1, "b": 2, "c": 3})),
    "columns of two lengths for rows": (
        errors.NotRectangular,
        run(fitted(), {"a": [1], "b": [2, 3], "c": [4]}),
    ),
    "two columns of one name": (
        errors.NotRectangular,
        run(fitted(), pd.DataFrame(X[:, :2], columns=["a", "a"])),
    ),
    "a number of 400 digits": (errors.WrongDtype, run(fitted(), [[10**400, 1, 2]])),
    "rows with and without names": (
        errors.NotRectangular,
        run(named(), [{"age": 1, "fare": 2, "city": 3}, [1, 2, 3]]),
    ),
    "no columns": (errors.MissingColumn, run(named(), {})),
    "ragged lists for one number a row": (
        errors.NotRectangular,
        run(flour.scalar("n"), [[1, 2], [3]]),
    ),
    "nothing for words": (errors.WrongDtype, run(flour.tokens().phrases(), None)),
    "a number for words": (errors.WrongDtype, run(flour.tokens().phrases(), [["a"], 5])),
    "an unseen category": (
        errors.InputError,
        run(flour.from_sklearn(OneHotEncoder().fit([["a"], ["b"]])), [["a"], ["c"]]),
    ),
    "a field out of range": (
        errors.WrongDtype,
        run(flour.csv({"n": flour.Scalar("int8")}), ["1", "300"]),
    ),
    "an open quote": (errors.NotRectangular, run(flour.csv({"a": flour.Text()}), ['"a'])),
    "fractions for whole numbers": (errors.WrongDtype, run(flour.category("n", "int64"), [1, 2.5])),
}


def of_another_version() -> MinMaxScaler:
    """A model without an attribute that the installed version has."""
    fitted = MinMaxScaler().fit(X)
    del fitted.min_
    return fitted


IMPORTS: dict[str, tuple[type[FlourError], Callable[[], Any]]] = {
    "never fitted": (errors.UnfittedEstimator, bring(StandardScaler())),
    "never fitted with sample": (errors.UnfittedEstimator, bring(StandardScaler(), X)),
    "never fitted step": (
        errors.UnfittedEstimator,
        bring(Pipeline([("scale", StandardScaler()), ("model", LogisticRegression())]), X),
    ),
    "fitted by another version": (errors.OtherVersion, bring(of_another_version())),
    "a sample of one number": (errors.NotRectangular, bring(StandardScaler().fit(X), 5)),
    "a ragged sample": (errors.NotRectangular, bring(StandardScaler().fit(X), [[1, 2, 3], [4]])),
    "a sample of dates": (
        errors.ParameterError,
        bring(StandardScaler().fit(X), X.astype("datetime64[s]")),
    ),
    "a class": (errors.UnfittedEstimator, bring(StandardScaler, X)),
    "nobody knows it": (errors.UnknownEstimator, bring(Homemade().fit(X))),
    "nobody knows a step": (
        errors.UnknownEstimator,
        bring(
            make_pipeline(
                ColumnTransformer([("mine", make_pipeline(Homemade()), [0, 1])]), StandardScaler()
            ).fit(X)
        ),
    ),
    "not an estimator": (errors.UnknownEstimator, bring({"coef": [1]}, X)),
    "a function of the user": (
        errors.UnsupportedSetting,
        bring(make_pipeline(FunctionTransformer(lambda x: x + 1), StandardScaler()).fit(X)),
    ),
    "a setting the library itself trips over": (
        errors.UnsupportedSetting,
        bring(make_pipeline(GenericUnivariateSelect(mode="k_best", param=0.5)).fit(X, TWO)),
    ),
    "a tokenizer of the user": (
        errors.UnsupportedSetting,
        bring(CountVectorizer(tokenizer=str.split, token_pattern=None).fit(["a b"])),
    ),
}


PROGRAMS: dict[str, tuple[type[FlourError], Callable[[], Any]]] = {
    "text where numbers go": (errors.TypeMismatch, lambda: flour.text().sum()),
    "words where numbers go": (errors.TypeMismatch, lambda: flour.tokens().exp()),
    "a record where a vector goes": (errors.TypeMismatch, ages.softmax),
    "a category where numbers go": (errors.TypeMismatch, ages["city"].exp),
    "a document that was not cut": (errors.TypeMismatch, lambda: flour.text().word_ngrams(["a"])),
    "ints where floats go": (
        errors.TypeMismatch,
        lambda: flour.vector("x", 2, "int64").subtract([1, 2]),
    ),
    "weights of another width": (
        errors.TypeMismatch,
        lambda: flour.vector("x", 3).linear([[1, 2]], [0]),
    ),
    "no such column": (errors.TypeMismatch, lambda: ages["name"]),
    "no such output": (errors.TypeMismatch, lambda: fitted()["label"]),
    "no such element": (errors.TypeMismatch, lambda: flour.vector("x", 3).element(3)),
    "strings beside numbers": (errors.TypeMismatch, lambda: ages["age"].concat(ages["city"])),
    "numbers in place of a flow": (
        errors.TypeMismatch,
        lambda: flour.vector("x", 1).concat([1.0]),  # type: ignore[arg-type]
    ),
    "two inputs of one name": (
        errors.TypeMismatch,
        lambda: flour.vector("x", 1).concat(flour.vector("x", 2)).inputs(),
    ),
    "several outputs at once": (errors.TypeMismatch, pair.sum),
    "weights without a row": (
        errors.ParameterError,
        lambda: flour.vector("x", 2).linear([1.0, 2.0], [0]),
    ),
    "weights of too few classes": (
        errors.ParameterError,
        lambda: flour.vector("x", 2).linear_classifier([1.0, 2.0], classes=["a", "b", "c"]),
    ),
    "a dtype that is none": (errors.ParameterError, lambda: flour.vector("x", 2, "complex128")),
    "a negative width": (errors.ParameterError, lambda: flour.vector("x", -1)),
    "not a regular expression": (errors.ParameterError, lambda: flour.text().tokenize("(")),
    "n-grams of no length": (errors.ParameterError, lambda: flour.tokens().phrases(0, 2)),
    "a dtype nobody knows": (errors.ParameterError, lambda: flour.vector("x", 2, "floaty")),
    "a width that is a word": (
        errors.ParameterError,
        lambda: flour.vector("x", "two"),  # type: ignore[arg-type]
    ),
    "a type that is none": (errors.ParameterError, lambda: flour.record("r", {"age": float})),
    "words for weights": (errors.ParameterError, lambda: flour.vector("x", 1).linear("abc", [0])),
    "ragged weights": (
        errors.ParameterError,
        lambda: flour.vector("x", 1).linear([[1.0], [1.0, 2.0]], []),
    ),
    "a word for a number": (
        errors.ParameterError,
        lambda: flour.vector("x", 1).element("a"),  # type: ignore[arg-type]
    ),
    "nothing to take": (errors.ParameterError, lambda: flour.vector("x", 2).arg_max().take([])),
    "no list of classes": (
        errors.ParameterError,
        lambda: flour.vector("x", 1).linear_classifier([1.0], classes=5),  # type: ignore[arg-type]
    ),
    "no list of categories": (
        errors.ParameterError,
        lambda: flour.category("k").one_hot(None),  # type: ignore[arg-type]
    ),
    "a number for an output": (
        errors.TypeMismatch,
        lambda: flour.outputs(a=5),  # type: ignore[arg-type]
    ),
    "a form nobody draws": (errors.ParameterError, lambda: flour.show(flour.vector("x", 1), "pdf")),
    "a program without outputs": (errors.ParameterError, flour.outputs),
}


@pytest.mark.parametrize("name", [*DATA, *IMPORTS, *PROGRAMS])
def test_every_mistake_has_its_class_and_message(name: str, golden: Golden) -> None:
    kind, mistake = {**DATA, **IMPORTS, **PROGRAMS}[name]
    with pytest.raises(FlourError) as caught:
        mistake()
    assert type(caught.value) is kind
    assert golden == re.sub(r"test_errors\.py:\d+", "test_errors.py:N", str(caught.value))
    problem = caught.value
    assert problem.where
    assert problem.hint
    assert problem.found or name not in DATA


@pytest.mark.parametrize("name", DATA)
def test_native_plans_complain_in_the_same_words(name: str) -> None:
    kind, mistake = DATA[name]
    program, data = (cell.cell_contents for cell in reversed(mistake.__closure__ or ()))
    assert isinstance(program, flour.Flow)
    with pytest.raises(kind) as reference:
        mistake()
    with pytest.raises(kind) as native:
        oven.bake(program).run(data)
    assert str(native.value) == str(reference.value)


def test_every_mistake_in_data_is_a_value_error() -> None:
    assert all(issubclass(kind, ValueError) for kind, _ in DATA.values())


def test_every_class_of_error_is_shown_above() -> None:
    shown = {kind for kind, _ in {**DATA, **IMPORTS, **PROGRAMS}.values()}
    every = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, FlourError)
    }
    # The others are the families' names, or need a damaged file, a part of an ONNX model, a
    # Python stage, or a coroutine.
    families = {errors.FlourError, errors.ImportRefused, errors.DamagedProgram}
    families |= {errors.OpaqueFailed, errors.FunctionFailed, errors.PythonRefused}
    families |= {errors.WrongAnswer}
    assert every - shown == families


def test_messages_have_their_parts_in_order() -> None:
    problem = FlourError("what", where="where", found="found", hint="hint")
    assert str(problem).splitlines() == [
        "what",
        "  at     where",
        "  found  found",
        "  hint   hint",
    ]
    assert str(FlourError("what")) == "what"


def test_a_frame_for_a_program_without_names_goes_by_position() -> None:
    model = ColumnTransformer([("s", StandardScaler(), [0]), ("p", "passthrough", [1])])
    rows = np.array([[1.0, "a"], [2.0, "b"]], object)
    program = flour.from_sklearn(model.fit(rows), sample=rows)
    frame = pd.DataFrame({"some": [1.0, 2.0], "names": ["a", "b"]})
    by_frame, by_rows = (program.reference(x)["features"] for x in (frame, rows))
    assert {name: list(by_frame[name]) for name in by_frame} == {
        name: list(by_rows[name]) for name in by_rows
    }


def texts() -> flour.Flow:
    """A program whose first column holds texts."""
    row = flour.record(a=str, b=float, c=float)
    return flour.outputs(v=row["b"] + row["c"], s=row["a"].length())


@pytest.mark.parametrize("made", [texts, fitted])
@pytest.mark.parametrize(
    ("forms", "odd", "found"),
    [
        ("vlv", "b", "a list among single values"),
        ("lvv", "a", "a list among single values"),
        ("vvl", "c", "a list among single values"),
        ("vll", "a", "a single value among lists"),
        ("lvl", "b", "a single value among lists"),
        ("llv", "c", "a single value among lists"),
    ],
)
def test_the_column_of_another_form_is_named(
    made: Callable[[], flour.Flow], forms: str, odd: str, found: str
) -> None:
    values = {"a": "7" if made is texts else 7.0, "b": 1.0, "c": 2.0}
    row = {n: [v] if f == "l" else v for f, (n, v) in zip(forms, values.items(), strict=True)}
    for answer in (made().reference, oven.bake(made()).run):
        with pytest.raises(errors.NotRectangular, match="a row has one value in each") as refused:
            answer(row)
        assert (refused.value.where, refused.value.found) == (f"$.{odd}", found)
