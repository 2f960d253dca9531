"""Rows of any names: DictVectorizer and FeatureHasher, alone and ahead of models."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import flour
import oven
from flour.core.errors import NotNumeric, TypeMismatch, UnsupportedSetting, WrongDtype
from flour.core.types import Pairs
from tests.estimators import check

ROWS: list[dict[str, Any]] = [
    {"city": "Roma", "age": 31, "club": True},
    {"city": "Łódź", "age": 2.5, "日本": 0.125},
    {},
    {"city": "", "age": np.float32(0.1), "city=Roma": 2, "": -1.0},
    {"age": Decimal("4.25"), "city": "Roma", "club": False, "long name " * 9: 1e-300},
    {"age": 10**15, "🥨": -7, "city": "São Paulo"},
]
#: What only DictVectorizer takes.
LOOSE: list[dict[str, Any]] = [
    {"age": None, "tags": ["a", "b"]},
    {"tags": (), "city": ["Roma", "Łódź"]},
    {"tags": {"b"}, "age": float("nan")},
]
LABELS = np.arange(len(ROWS)) % 2
NEW: list[dict[str, Any]] = [*ROWS, {"never": 3, "seen": "x", "age": 1}, {"city": "Zürich"}]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("separator", ["=", "", " → "])
def test_named_values(*, narrow: bool, stored: bool, ordered: bool, separator: str) -> None:
    made = DictVectorizer(
        dtype=np.float32 if narrow else np.float64, sparse=stored, sort=ordered, separator=separator
    ).fit(ROWS + LOOSE)
    program = check(made, NEW + LOOSE, tolerance=0)
    assert sparse.issparse(program.reference(ROWS)["features"]) == stored


@pytest.mark.parametrize("kind", ["dict", "pair"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("width", [1, 3, 2**18])
@pytest.mark.parametrize("narrow", [False, True])
def test_hashed_values(kind: str, signed: bool, width: int, narrow: bool) -> None:  # noqa: FBT001
    made = FeatureHasher(
        width, input_type=kind, alternate_sign=signed, dtype=np.float32 if narrow else np.float64
    )
    rows = NEW if kind == "dict" else [list(row.items()) for row in NEW]
    # The library adds up what falls together in the order in which it sorted it.
    check(made, rows, tolerance=1e-7 if narrow else 1e-12)


HEADS = {
    "linear": LogisticRegression(),
    "bayes": make_pipeline(MaxAbsScaler(), MultinomialNB()),
    "trees": RandomForestClassifier(5, random_state=0),
    "near": KNeighborsClassifier(1),
    "rare": make_pipeline(TfidfTransformer(), LogisticRegression()),
    "svd": make_pipeline(TruncatedSVD(2, random_state=0), LogisticRegression()),
}


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("first", [DictVectorizer(), FeatureHasher(50, alternate_sign=False)])
def test_models_of_named_values(first: Any, head: str) -> None:
    small = [{k: min(abs(v), 50) if k == "age" else v for k, v in row.items()} for row in ROWS]
    rows = [{k: v for k, v in row.items() if isinstance(v, str) or v > 0} for row in small]
    model = make_pipeline(first, HEADS[head]).fit(rows, LABELS)
    check(model, [*rows, {"never": 3, "city": "Roma"}], tolerance=1e-9)


def test_several_steps_of_one_row() -> None:
    both = FeatureUnion([("a", DictVectorizer()), ("b", DictVectorizer(dtype=np.float32))])
    check(make_pipeline(both, LogisticRegression()).fit(ROWS, LABELS), NEW, tolerance=1e-9)
    apart = FeatureUnion([("a", DictVectorizer()), ("b", DictVectorizer(separator=":"))])
    with pytest.raises(UnsupportedSetting, match="one separator"):
        flour.from_sklearn(apart.fit(ROWS))


def test_equal_names_are_added_up_in_their_order() -> None:
    """In the width that was asked for: what is too small for a float32 sum is lost."""
    rows = [[("a", 1e8), ("b", 2.0), ("a", 1.0), ("a", 1.0)]] * 2
    for dtype, want in (("float64", 1e8 + 2), ("float32", 1e8)):
        program = flour.pairs().named_values(["a", "b"], dtype).to_dense()
        got = oven.bake(program).run(rows)["output"]
        np.testing.assert_array_equal(got, program.reference(rows)["output"])
        assert got[1].tolist() == [want, 2.0]


def test_a_row_alone_and_rows_under_the_inputs_name() -> None:
    plan = oven.bake(flour.pairs("X").named_values(["X", "y=z"]).to_dense())
    assert plan.run({"X": 2, "y": "z"})["output"].tolist() == [[2.0, 1.0]]
    assert plan.run({"X": 2})["output"].tolist() == [[2.0, 0.0]]
    assert plan.run({"X": [{"X": 2}, {}]})["output"].tolist() == [[2.0, 0.0], [0.0, 0.0]]
    assert plan.run([])["output"].shape == (0, 2)


@pytest.mark.parametrize(
    ("data", "problem", "where"),
    [
        ([{"a": 1}, {"a": [1]}], NotNumeric, "$[1].a"),
        ([{"a": {"b": 1}}], NotNumeric, "$[0].a"),
        ([{"a": None}], NotNumeric, "$[0].a"),
        ([{"a": 1j}], NotNumeric, "$[0].a"),
        ([{"a": b"x"}], NotNumeric, "$[0].a"),
        ([{"a": 10**400}], NotNumeric, "$[0].a"),
        ([{3: 1.0}], WrongDtype, "$[0]"),
        (["a"], WrongDtype, "$[0]"),
        ([["a", 1]], WrongDtype, "$[0][0]"),
        ([3], WrongDtype, "$[0]"),
        ("a", WrongDtype, "$"),
        (3, WrongDtype, "$"),
        (sparse.csr_array((1, 3)), WrongDtype, "$"),
    ],
)
def test_rows_that_are_none(data: Any, problem: type[Exception], where: str) -> None:
    plan = oven.bake(flour.pairs("X").named_values(["a"]))
    with pytest.raises(problem) as raised:
        plan.run(data)
    assert f"at     {where}\n" in f"{raised.value}\n"


def test_what_has_no_program() -> None:
    with pytest.raises(UnsupportedSetting, match="is no string"):
        flour.from_sklearn(DictVectorizer(sort=False).fit([{1: 2.0}]))
    with pytest.raises(UnsupportedSetting, match="cuts numbers off"):
        flour.from_sklearn(DictVectorizer(dtype=np.int64).fit(ROWS))
    with pytest.raises(TypeMismatch, match="needs pairs"):
        flour.tokens("x").named_values(["a"])
    with pytest.raises(TypeMismatch, match="needs tokens"):
        flour.pairs("x").word_ngrams(["a"])


def test_half_a_pair_of_surrogates_has_no_hash() -> None:
    plan = oven.bake(flour.from_sklearn(FeatureHasher(8)))
    with pytest.raises(UnicodeEncodeError):
        plan.run([{"fine": 1}, {"\ud800": 1}])
    assert plan.run([{"\ud800": 0}])["features"].nnz == 0


def test_how_rows_are_read_is_saved(tmp_path: Any) -> None:
    made = DictVectorizer(separator="::").fit(ROWS)
    oven.bake(flour.from_sklearn(made)).save(tmp_path / "plan")
    again = oven.load(tmp_path / "plan")
    assert again.inputs == {"X": Pairs("::", lenient=True)}
    assert (again.run(NEW)["features"] != made.transform(NEW)).nnz == 0


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.floats(width=32) | NAMES | st.booleans() | st.integers(-(2**53), 2**53)
MAPPINGS = st.lists(st.dictionaries(NAMES, VALUES, max_size=8), min_size=1, max_size=5)


@given(MAPPINGS, MAPPINGS)
@settings(max_examples=40)
def test_any_rows_answer_as_the_library(rows: list[dict[str, Any]], more: list[Any]) -> None:
    made = DictVectorizer().fit([*rows, {"a": 1.0}])
    plan = oven.bake(flour.from_sklearn(made))
    both = rows + more
    want = made.transform(both).toarray()
    np.testing.assert_array_equal(plan.run(both)["features"].toarray(), want)
