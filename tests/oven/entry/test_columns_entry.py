"""Entries for arrays by name answer as coercion and `Plan.run` do, whatever the arrays are."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import flour
import oven
from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from flour.language.flow import source
from oven.entry.columns_entry import COLUMN, FLAT
from oven.plans.plan import Plan
from tests.oven.entry.answers import answer, data_may_change, leaks_nothing, threads_do_not_meet
from tests.oven.entry.test_record_entry import Word, agree, plan

CITIES = np.array(["Graz", "Łódź", "", "klein", "groß", "a much longer name", "🥨", "\x00z"])
DTYPES = {
    "age": "float64",
    "size": "float32",
    "id": "int64",
    "small": "int8",
    "count": "uint16",
    "huge": "uint64",
    "flag": "bool",
    "city": "U",
    "größe": "U",
    "level": "int64",
    "unused": "float64",
}


def columns(rows: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Arrays for the plan over records of every kind of value."""
    rng = np.random.default_rng(seed)
    made = {name: rng.integers(0, 2, rows).astype(kind) for name, kind in DTYPES.items()}
    return {**made, "city": rng.choice(CITIES, rows), "größe": rng.choice(CITIES, rows)}


@cache
def of_vectors() -> Plan:
    """A plan over several inputs: vectors of numbers and strings, a document, a number."""
    x, more = source("x", Vector(3, "float32")), source("more", Vector(2, "int64"))
    words, text = source("words", Vector(2, "string")), source("text", Text())
    y = source("y", Scalar("float64"))
    codes = words.categorise_text(
        ["Graz", "Łódź", "🥨", "groß"], [0, 1, 0, 1], [0, 2, 4], [2, 2], [3, 3], [4, 4]
    )
    counts = text.lower().tokenize(r"\w+").word_ngrams(["bad", "good", "é"], 1, 1).to_dense()
    label = x.arg_max().take(["no", "né", "yes"])
    sums = x.linear(np.ones((2, 3), "float32"), [])
    return oven.bake(
        flour.outputs(label=label, y=y + y, sums=sums, more=more + more, codes=codes, counts=counts)
    )


def vectors(rows: int) -> dict[str, NDArray[Any]]:
    """Arrays for it."""
    rng = np.random.default_rng(1)
    return {
        "x": rng.normal(size=(rows, 3)).astype("float32"),
        "more": rng.integers(-9, 9, (rows, 2)),
        "words": rng.choice(CITIES, (rows, 2)),
        "text": rng.choice(np.array(["bad good é", "", "Good" * 40, "é bad 🥨"]), rows),
        "y": rng.normal(size=rows),
    }


@cache
def of_one(kind: Type) -> Plan:
    """A plan of one input."""
    x = source("x", kind)
    if isinstance(kind, Text):
        return oven.bake(x.tokenize(r"\w+").word_ngrams(["bad", "good"], 1, 1).to_dense())
    if kind == Vector(2, "string"):
        return oven.bake(x.categorise_text(["a", "é"], [0, 0], [0, 1, 2], [1, 1], [2, 2], [3, 3]))
    return oven.bake(x + x)


def objects(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The same with strings as Python's."""
    return {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in arrays.items()}


def taken(made: Plan, data: Any) -> Any:
    """What the entry itself answers; it must not hand the data on."""
    ranks: dict[str, int] = {}
    call = made.code.column_entry(ranks, lambda _: pytest.fail("handed on"))
    assert call is not None
    got = answer(call, data)
    assert got == agree(made, data)
    return got


@pytest.mark.parametrize("rows", [1, 2, 7, 300])
def test_columns_of_a_record(rows: int) -> None:
    flat = columns(rows)
    tall = {name: column[:, None] for name, column in flat.items()}
    backwards = {name: np.repeat(column, 3)[::-3] for name, column in flat.items()}
    for arrays in (flat, tall, dict(reversed(flat.items())), backwards):
        want = taken(plan(), arrays)
        assert taken(plan(), objects(arrays)) == want
    lists = {name: column.tolist() for name, column in flat.items()}
    assert agree(plan(), lists) == agree(plan(), flat)
    names = {"".join(list(name)): column for name, column in flat.items()}
    assert taken(plan(), names) == agree(plan(), flat)


@pytest.mark.parametrize("rows", [1, 5, 500])
def test_vectors_and_documents(rows: int) -> None:
    arrays = vectors(rows)
    want = taken(of_vectors(), arrays)
    assert isinstance(want, list), want
    assert taken(of_vectors(), objects(arrays)) == want
    wide = {k: np.repeat(v, 2, axis=0)[::2] for k, v in arrays.items()}
    assert taken(of_vectors(), wide) == want
    odd = {**arrays, "x": np.asfortranarray(arrays["x"])}
    assert taken(of_vectors(), odd) == want
    # Arrays out of a pickle have a dtype of their own.
    copies = pickle.loads(pickle.dumps({**arrays, "text": arrays["text"].astype(object)}))
    assert all(copies[name].dtype is not arrays[name].dtype for name in copies)
    assert taken(of_vectors(), copies) == want


def test_one_input() -> None:
    rows = np.arange(6, dtype="float32").reshape(2, 3)
    vector = of_one(Vector(3, "float32"))
    for odd in (np.asfortranarray(rows), np.repeat(rows, 2, axis=1)[:, ::2], rows[::-1, ::-1]):
        assert isinstance(taken(vector, {"x": odd}), list)
        assert taken(vector, odd) == agree(vector, odd.tolist())
    assert isinstance(taken(of_one(Vector(3, "float32")), {"x": rows}), list)
    assert isinstance(taken(of_one(Vector(3, "int64")), {"x": rows.astype("int64")}), list)
    texts = np.array(["bad é", "good"])
    for data in (texts, texts[:, None], texts.astype(object), texts[:, None].astype(object)):
        assert isinstance(taken(of_one(Text()), {"x": data}), list)
        assert taken(of_one(Text()), data) == agree(of_one(Text()), ["bad é", "good"])
    words = np.array([["a", "é"], ["é", "é"], ["a", "x"]])
    assert isinstance(taken(of_one(Vector(2, "string")), {"x": words}), list)
    assert isinstance(taken(of_one(Scalar("int64")), {"x": np.arange(4)}), list)
    agree(of_one(Scalar("int64")), np.arange(4))
    assert isinstance(taken(of_one(Scalar("float64")), {"x": np.arange(4.0)[:, None]}), list)


WRONG: list[Any] = [
    *[np.arange(3), np.arange(3.0), np.array([1, 0, 1], "int8"), np.array([0.5, 1, np.nan])],
    *[np.array([2**60, 1, 2]), np.array([1, 0, 1], ">i8"), np.arange(4), np.zeros((3, 2))],
    *[np.array(["1", "2", "3"]), np.array(["a", None, float("nan")], object), [1, 0, 1], None],
    *[np.array(["a", 3, "b"], object), np.array(["x\ud800", "y", "z"]), np.array(5.0), 7, "abc"],
    *[np.array(["x", "half \udfff", "z"], object), np.array([b"a", b"b", b"c"]), (1, 0, 1)],
    *[np.array(["a", "b", "c"], ">U3"), np.array([Word("a"), "b", "c"], object)],
    *[np.zeros((3, 1, 1)), np.array([True, False, True]), np.array(["x" * 9000, "", "é" * 5000])],
    *[np.ma.masked_array([1.0, 2.0, 3.0]), np.zeros(3, "datetime64[D]"), np.zeros(3, "complex64")],
    np.frombuffer(b"\0" + np.arange(3.0).tobytes(), np.uint8)[1:].view(np.float64),
]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("name", DTYPES)
def test_every_array_in_every_column(name: str) -> None:
    for value in WRONG:
        arrays: dict[str, Any] = {**columns(3), name: value}
        agree(plan(), arrays)
        agree(plan(), {name: value, **arrays})


@pytest.mark.parametrize("name", ["x", "more", "words", "text", "y"])
def test_every_array_in_every_input(name: str) -> None:
    for value in (*WRONG, np.zeros((3, 3)), np.zeros((3, 2), "int64"), np.zeros((3, 2), "U1")):
        agree(of_vectors(), {**vectors(3), name: value})


letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
strings = st.lists(letters | st.text("aéŁ🥨", max_size=3), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(strings, st.integers(0, 9))
def test_strings_are_utf8(words: list[str], seed: int) -> None:
    arrays = columns(len(words), seed)
    distinct = sorted({word.rstrip("\0") for word in words})
    x = source("x", Record((("a", Scalar("float64")), ("city", Category("string")))))
    made = x.field("city").one_hot(distinct).to_dense()
    data: dict[str, Any] = {"a": arrays["age"], "city": np.array(words)}
    program = made.concat(x.field("a"))
    want = program.reference(data)["output"]
    coded = _one_hot_plan(len(distinct), tuple(distinct))
    np.testing.assert_array_equal(coded.run(data)["output"], want)
    np.testing.assert_array_equal(coded.run(objects(data))["output"], want)
    assert want[:, :-1].sum() == len(words)


def _one_hot_plan(count: int, names: tuple[str, ...]) -> Plan:
    assert count == len(names)
    x = source("x", Record((("a", Scalar("float64")), ("city", Category("string")))))
    return oven.bake(x.field("city").one_hot(list(names)).to_dense().concat(x.field("a")))


def test_the_wrong_names_and_rows() -> None:
    arrays = columns(3)
    short = {name: column for name, column in arrays.items() if name != "age"}
    wrong: list[Any] = [short, {**arrays, "more": np.ones(3)}, {**short, "ages": np.ones(3)}, {}]
    wrong += [{**short, 3: np.ones(3)}, {**short, Word("age"): np.ones(3)}, columns(0)]
    wrong += [{**arrays, "age": np.ones(2)}, {**arrays, "city": np.array("Graz")}]
    for data in wrong:
        agree(plan(), data)
    for rows in (0, 3):
        agree(of_vectors(), {k: v for k, v in vectors(rows).items() if k != "x" or rows})
    agree(of_one(Vector(3, "float32")), {"y": np.ones((2, 3), "float32")})
    agree(of_one(Vector(3, "float32")), {"x": np.ones((0, 3), "float32")})


def test_columns_that_nobody_reads() -> None:
    kind = Record((("a", Scalar("float64")), ("b", Scalar("float64"))), unread=("b",))
    made = oven.bake(source("x", kind).field("a") + 1.0)
    a = np.arange(3.0)
    for data in ({"a": a}, {"a": a, "b": "x"}, {"b": a}, {"b": a[:2], "a": a}, {"a": a, "b": a}):
        agree(made, data)
    taken(made, {"a": a, "b": np.array(["x", None, 3], object)})


def test_who_is_strict_says_so() -> None:
    handed: list[Any] = []
    ranks = {"x": COLUMN, "more": COLUMN, "words": COLUMN, "text": COLUMN, "y": FLAT}
    call: Any = of_vectors().code.column_entry(ranks, handed.append)
    arrays = vectors(2)
    assert call(arrays) is None
    assert handed == [arrays]
    assert len(call({**arrays, "text": arrays["text"][:, None]})) == 6
    assert call({**arrays, "text": arrays["text"][:, None], "y": arrays["y"][:, None]}) is None


def test_large_blocks() -> None:
    arrays = columns(9000)
    assert taken(plan(), arrays) == taken(plan(), objects(arrays))
    assert isinstance(taken(of_vectors(), vectors(4000)), list)
    assert isinstance(taken(of_one(Vector(30, "float32")), {"x": np.ones((9000, 30), "f4")}), list)


def test_nothing_is_leaked() -> None:
    held: list[Any] = [columns(3), objects(columns(3)), {**columns(3), "age": np.zeros(2)}]
    words = [word for word in held[1]["city"] if len(word) > 1]
    leaks_nothing(
        plan().entry(), held, [*words, *(part for item in held for part in item.values())]
    )
    rows = np.ones((2, 3), "float32")
    other = [{"x": rows}, {"x": rows.astype("float64"), "y": 1}]
    leaks_nothing(of_one(Vector(3, "float32")).entry(), other, [rows])


def test_threads_do_not_meet() -> None:
    blocks = [vectors(rows) for rows in (1, 2, 50, 3000)]
    threads_do_not_meet(of_vectors().entry(), [*blocks, *map(objects, blocks)])


def test_the_dict_may_be_emptied_meanwhile() -> None:
    for call, made in (
        (plan().entry(), lambda: columns(2)),
        (of_one(Vector(3, "float32")).entry(), lambda: {"x": np.ones((2, 3), "float32")}),
    ):
        data_may_change(call, lambda _, made=made: (data := made(), data))  # type: ignore[misc]


def test_columns_of_whole_numbers_need_no_coercion(monkeypatch: pytest.MonkeyPatch) -> None:
    record = source("x", Record((("age", Scalar("float64")), ("city", Scalar("string")))))
    codes = record.field("city").one_hot(["Graz", "Wels"]).to_dense()
    made = oven.bake(flour.outputs(age=record.field("age") * 2.0, city=codes), background=False)
    monkeypatch.setattr(Plan, "answer", lambda *_: pytest.fail("by Plan.run"))
    cities = np.array(["Graz", "Wels", ""], object)
    for dtype in ("int64", "uint8", "int32", "bool", "uint64"):
        ages, _ = made.entry()({"age": np.array([0, 1, 1], dtype), "city": cities})
        assert ages.tolist() == [0.0, 2.0, 2.0], dtype
