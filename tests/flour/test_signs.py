"""Python's signs, slices and shorthands build programs that answer as numpy does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
import oven
from flour import FlourError, Flow
from flour.core.errors import ParameterError, TypeMismatch

X = np.array([[0, 1, 2, 3.0], [np.nan, -1, 5, 0], [7, 7, -2.5, 1]])
N = np.array([0, 1, -5, 12])
#: The same expression for a flow and for numpy.
EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "==": lambda x: x == 0,
    "!=": lambda x: x != 0,
    "<": lambda x: x < 1,
    "<=": lambda x: x <= 1,
    ">": lambda x: x > 1,
    ">=": lambda x: x >= 1,
    "number first": lambda x: 1 < x,  # noqa: SIM300 (the point of the case)
    "array": lambda x: x == np.array([0, 1, 2, 7]),
    "array first": lambda x: np.array([0, 1, 2, 7]) > x,
    "&": lambda x: (x > 0) & (x < 3),
    "|": lambda x: (x > 2) | (x == 0),
    "^": lambda x: (x > 0) ^ (x < 2),
    "~": lambda x: ~(x > 0),
    "& of a bool": lambda x: (x > 0) & True,
    "**": lambda x: x**2,
    "** of an array": lambda x: x ** np.array([1, 2, 3, 0.5]),
    "number **": lambda x: 2**x,
    "%": lambda x: x % 2,
    "abs": abs,
    "-": lambda x: -(1 - x) - 2,
    "/": lambda x: (1 / x) / 3,
    "flows ==": lambda x: x == x[:, ::-1],
    "flows !=": lambda x: x != x[:, ::-1],
    "flows <": lambda x: x < x[:, ::-1],
    "flows <=": lambda x: x <= x[:, ::-1],
    "flows >": lambda x: x > x[:, ::-1],
    "flows >=": lambda x: x >= x[:, ::-1],
    "flows **": lambda x: abs(x) ** x[:, ::-1],
    "a column": lambda x: x[:, 1],
    "the last column": lambda x: x[:, -1],
    "a slice": lambda x: x[:, 1:3],
    "a stepped slice": lambda x: x[:, ::-2],
    "a list": lambda x: x[:, [2, 0, 2]],
    "a mask": lambda x: x[:, np.array([True, False, False, True])],
    "mean": lambda x: x.mean(*rows(x)),
    "std": lambda x: x.std(*rows(x)),
    "var": lambda x: x.var(*rows(x)),
    "min": lambda x: x.min(*rows(x)),
    "max": lambda x: x.max(*rows(x)),
}
WHOLE: dict[str, Callable[[Any], Any]] = {
    "==": lambda n: n == 1,
    "== a fraction": lambda n: n == 0.5,
    "<": lambda n: n < 0.5,
    "+": lambda n: 2 + n + 1,
    "-": lambda n: 2 - (n - 1),
    "*": lambda n: 2 * n * 3,
    "/": lambda n: n / 2,
    "&": lambda n: n & 3,
    "|": lambda n: 1 | n,
    "^": lambda n: n ^ 6,
    "~": lambda n: ~n,
    "<<": lambda n: n << 2,
    ">>": lambda n: n >> 1,
    "**": lambda n: n**2,
    "%": lambda n: n % 3,
    "two widths": lambda n: n == n + 0.5,
    "abs": abs,
}


def rows(x: Any) -> tuple[int, ...]:
    """numpy's axis of the columns of a row; a flow is one row anyhow."""
    return (1,) if isinstance(x, np.ndarray) else ()


def answers(program: Flow, data: Any) -> Any:
    """What the program answers, by definition and compiled."""
    defined, compiled = program.reference(data)["output"], oven.bake(program).run(data)["output"]
    if defined.dtype == object:
        np.testing.assert_array_equal(compiled, defined)
    else:
        np.testing.assert_allclose(compiled, defined, rtol=1e-12)
    assert compiled.dtype == defined.dtype
    return defined


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_floats(name: str, dtype: str) -> None:
    expression, data = EXPRESSIONS[name], X.astype(dtype)
    got, want = answers(expression(flour.vector("x", 4)), data), expression(data)
    np.testing.assert_allclose(got, want, rtol=1e-5 if dtype == "float32" else 1e-12)
    assert np.asarray(got).dtype.kind == want.dtype.kind


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers(name: str) -> None:
    got = answers(WHOLE[name](flour.scalar("n", "int64")), {"n": N})
    want = WHOLE[name](N)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == want.dtype


def test_a_number_takes_the_width_of_the_flow() -> None:
    """0.1 in float32 is not 0.1 in float64: numpy compares in the flow's width."""
    data = np.array([[0.1]], np.float32)
    assert answers(flour.vector("x", 1, "float32") == 0.1, data).tolist() == [[True]]


def test_strings_are_compared() -> None:
    cities = {"city": np.array(["Oslo", "Rome", None, "oslo"], object)}
    city = flour.category("city")
    assert answers(city == "Oslo", cities).tolist() == [True, False, False, False]
    assert answers(city != "Oslo", cities).tolist() == [False, True, True, True]
    known = answers(city.isin(["Oslo", "Rome", "Oslo"]), cities)
    assert known.tolist() == [True, True, False, False]
    text = flour.text()
    assert answers(text == "a.c", ["a.c", "abc", ""]).tolist() == [True, False, False]
    assert answers(text.isin(["a", "ab", ""]), ["ab", "abc", ""]).tolist() == [True, False, True]
    both = flour.category("a") == flour.category("b")
    assert answers(both, {"a": ["x", "y"], "b": ["x", "z"]}).tolist() == [True, False]
    assert answers(text + text.lower() == "AbAb", ["Ab"]).tolist() == [False]


def test_where_takes_flows_numbers_and_strings() -> None:
    x = flour.vector("x", 4)
    got = answers(flour.where(x > 1, x, 0), X)
    np.testing.assert_array_equal(got, np.where(X > 1, X, 0))
    assert answers((x[0] > 1).where("high", "low"), X).tolist() == ["low", "low", "high"]
    assert answers(flour.where(x[0] > 1, 1, 2), X).tolist() == [2, 2, 1]
    picked = answers(x.isin([7, 1]), X)
    np.testing.assert_array_equal(picked, np.isin(X, [7, 1]))


def test_records_and_programs_are_picked_from() -> None:
    people = flour.record("people", {"age": flour.Scalar(), "city": flour.Category()})
    assert people[0].node is people["age"].node is people[:, "age"].node
    assert str(people[["city"]].type) == "{city: Category[string]}"
    assert list(people[0:2].type.names) == ["age", "city"]  # type: ignore[union-attr]  # a record
    program = flour.outputs(a=people["age"], b=people["age"] > 3, c=people["city"])
    assert list(program[["c", "a"]].outputs) == ["c", "a"]


def test_text_has_a_length_and_is_joined_and_made_capital() -> None:
    texts = ["Straße", "aé日本ŉ", "", "ΐ x\U0001f600 z", "a" * 100 + "ß" * 50]
    text = flour.text()
    assert answers(text.length(), texts).tolist() == list(map(len, texts))
    words = text.tokenize(r"\w+")
    assert answers(words.length(), texts).tolist() == [1, 1, 0, 3, 1]
    joined = words.join(" <> ").length()
    assert answers(joined, texts).tolist() == [6, 5, 0, 11, 150]
    assert words.join(" <> ").reference(texts)["output"][3] == "ΐ <> x <> z"
    assert list(text.upper().reference(texts)["output"]) == [t.upper() for t in texts]
    plan = oven.bake(text.upper().char_ngrams(["SS", "Z"], 1, 2))
    assert all(stage.native for stage in plan.program.stages)
    assert plan.run(texts)["output"].toarray()[:, 0].tolist() == [1, 0, 0, 0, 99]


def test_bins_are_lists_of_edges() -> None:
    x = flour.vector("x", 2).bins([[0, 1], [1.5]])
    assert answers(x, [[0.5, 2], [-1, 1]]).tolist() == [[1, 1], [0, 0]]
    assert answers(flour.scalar("n").bins([18, 65]), {"n": [3.0, 18, 70]}).tolist() == [0, 1, 2]
    raw = flour.vector("x", 2).bins([0, 1, 1.5], [0, 2, 3])
    assert raw.node is x.node


TREES = [
    {
        "column": 1,
        "at_most": 2.0,
        "left": 1,
        "right": {"column": 0, "at_most": 4, "left": 5, "right": 7.5, "missing": "left"},
    },
    0.25,
]


def test_trees_are_nested_dicts() -> None:
    data = [[9, 2], [4, 3], [5, 3], [np.nan, 3], [1, np.nan]]
    x = flour.vector("x", 2)
    assert answers(x.trees(TREES, 1), data).ravel().tolist() == [2.25, 6.25, 8.75, 6.25, 6.25]
    assert answers(x.trees(TREES, mean=True), data).ravel()[0] == 0.625
    pairs = [{"column": 0, "at_most": 3, "left": [1, 2], "right": [3, 4]}]
    assert answers(x.trees(pairs), data).tolist()[0] == [3, 4]


def test_a_model_is_put_on_a_flow() -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(60, 4))
    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(data[:, 1:] ** 2, data[:, 1] > 0)
    x = flour.vector("x", 4)
    for program in (
        flour.from_sklearn(model, on=x[1:] ** 2),
        flour.from_sklearn(model).on(x[1:] ** 2),
        flour.from_sklearn(model).on(X=x[1:] ** 2),
    ):
        assert list(program.inputs()) == ["x"]
        got = oven.bake(program).run(data)
        np.testing.assert_array_equal(got["label"], model.predict(data[:, 1:] ** 2))
        np.testing.assert_allclose(
            got["probabilities"], model.predict_proba(data[:, 1:] ** 2), rtol=1e-12
        )
        assert "test_signs.py" in flour.show(program)


def test_a_text_model_is_put_on_a_column_of_csv() -> None:
    texts = ["good soup", "bad soup", "good"]
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(texts, [1, 0, 1])
    lines = flour.csv({"id": flour.Scalar("int64"), "text": flour.Text()})
    program = flour.from_sklearn(model, on=lines["text"])
    got = oven.bake(program).run([f"{number},{text}" for number, text in enumerate(texts)])
    np.testing.assert_array_equal(got["label"], model.predict(texts))


x = flour.vector("x", 4)
n = flour.scalar("n", "int64")
people = flour.record("people", {"age": flour.Scalar(), "city": flour.Category()})
MISTAKES: dict[str, tuple[type[FlourError], Callable[[], Any], str]] = {
    "truth": (TypeMismatch, lambda: bool(x > 0), "flour.where"),
    "and": (TypeMismatch, lambda: (x > 0) and (x < 1), "write &, |, ~"),
    "chained": (TypeMismatch, lambda: 0 < x < 1, "write &, |, ~"),
    "items": (TypeMismatch, lambda: list(x), ".outputs"),
    "in": (TypeMismatch, lambda: "label" in x, "isin"),
    "a column too far": (TypeMismatch, lambda: x[4], "count from 0"),
    "three indices": (TypeMismatch, lambda: x[1, 2, 3], "count from 0"),
    "a column that is a flow": (
        TypeMismatch,
        lambda: x[x > 0],  # type: ignore[index]  # the mistake
        "count from 0",
    ),
    "rows of text": (TypeMismatch, lambda: flour.text()[0], "rows are not picked"),
    "a typo in a column": (TypeMismatch, lambda: people["cty"], "did you mean 'city'"),
    "a typo in columns": (TypeMismatch, lambda: people[["age", "Cityy"]], "did you mean 'city'"),
    "a typo in an output": (
        TypeMismatch,
        lambda: flour.outputs(label=x, scores=x)["lable"],
        "did you mean 'label'",
    ),
    "a number too large": (ParameterError, lambda: n & 10**30, "a number"),
    "nothing": (ParameterError, lambda: x == None, "a number"),  # noqa: E711 (the point of the case)
    "a string for a number": (ParameterError, lambda: x == "a", "strings"),
    "a number for a string": (ParameterError, lambda: people["city"] == 5, "isin"),
    "an order of strings": (ParameterError, lambda: people["city"] < "a", "strings"),
    "a number beside a bool": (TypeMismatch, lambda: x & 1, "takes int8"),
    "one tree": (ParameterError, lambda: x.trees(TREES[0]), "'column': 0"),  # type: ignore[arg-type]
    "a typo in a node": (
        ParameterError,
        lambda: x.trees([{"colum": 0, "at_most": 1, "left": 0, "right": 1}]),
        "did you mean 'column'",
    ),
    "half a node": (ParameterError, lambda: x.trees([{"column": 0, "at_most": 1}]), "'left'"),
    "a node that compares words": (
        ParameterError,
        lambda: x.trees([{"column": "a", "at_most": 1, "left": 0, "right": 1}]),
        "trees[0]",
    ),
    "a node below": (
        ParameterError,
        lambda: x.trees([{"column": 0, "at_most": 1, "left": "no", "right": 1}]),
        "trees[0].left",
    ),
    "a way that is none": (
        ParameterError,
        lambda: x.trees([{"column": 0, "at_most": 1, "left": 0, "right": 1, "missing": "up"}]),
        "'left' or 'right'",
    ),
    "leaves of two lengths": (ParameterError, lambda: x.trees([[1, 2], 3]), "same number"),
    "a column that is not there": (
        TypeMismatch,
        lambda: x.trees([{"column": 7, "at_most": 1, "left": 0, "right": 1}]),
        "column 7",
    ),
    "one list of edges": (ParameterError, lambda: x.bins([1, 2]), "list of lists"),
    "edges of a scalar": (ParameterError, lambda: n.bins([[1], [2, 3]]), "list of lists"),
    "a mean of one number": (TypeMismatch, n.mean, "flour.concat"),
    "a length of numbers": (TypeMismatch, x.length, ".type.width"),
    "on nothing": (ParameterError, lambda: x.sum().on(), "program.on(x=flow)"),
    "on another name": (ParameterError, lambda: x.sum().on(X=x), "did you mean 'x'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_say_what_to_write(name: str) -> None:
    kind, mistake, said = MISTAKES[name]
    with pytest.raises(kind) as caught:
        mistake()
    assert said in str(caught.value)
    assert "test_signs.py" in str(caught.value)


def test_equal_programs_are_told_apart_as_keys() -> None:
    """A dict of flows never asks whether two of them are equal, which would be a program."""
    first, second = flour.vector("x", 2).sum(), flour.vector("x", 2).sum()
    assert first.digest == second.digest
    assert first.outputs == second.outputs
    assert {first: 1, second: 2}[first] == 1
