"""The entry for records answers as coercion and `Plan.run` do, whatever the values are."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flour
import oven
from flour.core.types import Category, Record, Scalar, Text, Type
from flour.data.batch import BatchReader
from flour.language.flow import Flow, source
from oven.entry.array_entry import around
from oven.plans.plan import Plan
from tests.oven.entry.answers import answer, data_may_change, leaks_nothing, threads_do_not_meet

KINDS: dict[str, Type] = {
    "age": Scalar("float64"),
    "size": Scalar("float32"),
    "id": Scalar("int64"),
    "small": Scalar("int8"),
    "count": Scalar("uint16"),
    "huge": Scalar("uint64"),
    "flag": Scalar("bool"),
    "city": Category("string"),
    "größe": Category("string"),
    "level": Category("int64"),
    "unused": Scalar("float64"),
}
ORDINARY: dict[str, Any] = {
    "age": 31.5,
    "size": 0.1,
    "id": 2**60 + 1,
    "small": -7,
    "count": 9,
    "huge": 2**62 + 1,
    "flag": True,
    "city": "Graz",
    "größe": "groß",
    "level": 2,
    "unused": None,
}


def program() -> Flow:
    """Numbers of every kind passed through, and codes of strings."""
    x = source("x", Record(tuple(KINDS.items())))
    whole = ("id", "small", "count", "huge")
    made = {name: x.field(name) + x.field(name) for name in (*whole, "size")}
    made["level"] = x.field("level").as_vector().cast("float64")
    made["flag"] = x.field("flag").cast("int8")
    cities = x.field("city").one_hot(["Graz", "Łódź", ""])
    sizes = x.field("größe").one_hot(["klein", "groß"])
    label = cities.to_dense().arg_max().take(["no", "né", "yes"])
    best = x.field("age") + 1.0
    return flour.outputs(label=label, both=cities.concat(sizes).to_dense(), best=best, **made)


@cache
def plan() -> Plan:
    """A plan over records."""
    return oven.bake(program())


@cache
def of_floats() -> Plan:
    """A plan over a record that is all numbers, which arrays may be, too."""
    x = source("x", Record(tuple((name, Scalar("float64")) for name in "abc"), positional=True))
    return oven.bake(x.columns(["a", "b", "c"]).linear([[1.0, -2.0, 0.5]] * 2, [0.0, 1.0]))


@cache
def of_text() -> Plan:
    """A plan over a document and a number."""
    x = source("x", Record((("review", Text()), ("stars", Scalar("float64")))))
    counts = x.field("review").lower().tokenize(r"\w+").word_ngrams(["bad", "good", "é"], 1, 1)
    return oven.bake(
        counts.to_dense().concat(x.field("stars")).linear([[1.0, 2.0, 4.0, 0.5]] * 2, [])
    )


@cache
def of_columns() -> Plan:
    """A plan over several inputs of one value each."""
    a, city = source("a", Scalar("float64")), source("city", Category("string"))
    return oven.bake(flour.outputs(twice=a + a, where=city.one_hot(["Graz", "Łódź"]).to_dense()))


PLANS = {"record": plan, "floats": of_floats, "text": of_text, "columns": of_columns}


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def agree(made: Plan, data: Any) -> Any:
    """The entry and the way around it say the same."""
    got = answer(made.entry(), data)
    assert got == answer(around(made.answer, BatchReader(made.inputs)), data), data
    return got


def test_a_row_is_answered_in_any_order() -> None:
    want = agree(plan(), ORDINARY)
    assert isinstance(want, list), want
    assert agree(plan(), dict(reversed(ORDINARY.items()))) == want
    # Names that are equal, not the same.
    assert agree(plan(), {"".join(list(name)): v for name, v in ORDINARY.items()}) == want


class Word(str):
    """A string that may mean something else by everything."""

    __slots__ = ()


class Number(float):
    """The same of a number."""

    __slots__ = ()


ODD: list[Any] = [
    *[None, True, False, 0, 1, -1, 127, 128, -128, -129, 255, 65535, 65536, 2**24 + 1],
    *[
        2**31,
        2**53,
        2**53 + 1,
        -(2**53) - 1,
        2**62 + 3,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63),
    ],
    *[10**400, -(2**70), 0.0, -0.0, 0.1, 1.5, 3.0, 1e300, -1e-320, 2.0**53, 2.0**60],
    *[
        float("nan"),
        float("inf"),
        float("-inf"),
        "",
        "Graz",
        "Łódź",
        "klein",
        "1",
        "nul\0",
        "half \ud800",
    ],
    *[np.float64(1.5), np.float64("nan"), np.float32(0.1), np.int64(7), np.int64(2**60 + 1)],
    *[np.int8(3), np.uint64(2**63 + 1), np.bool_(True), np.str_("Graz"), np.float16(0.1)],
    *[Word("Graz"), Number(2.0), b"Graz", 1j, [], [1.0], [None], ["Graz"], (), (1.0,), {}, object],
    *[np.array(1.0), np.array([1.0]), np.datetime64("2026-01-01"), "x" * 9000, np.longdouble(2)],
]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("name", KINDS)
def test_every_value_in_every_field(name: str) -> None:
    for place, value in enumerate(ODD):
        row = {**ORDINARY, name: value}
        agree(plan(), row)
        blocks: list[Any] = [list(row.values()), [ORDINARY, row]]
        blocks.append([list(ORDINARY.values()), tuple(row.values())])
        blocks.append({n: [v, ORDINARY[n]] for n, v in row.items()})
        agree(plan(), blocks[place % 4])


values = st.sampled_from(ODD) | st.floats() | st.integers(-(2**65), 2**65) | st.text(max_size=3)
likely = st.fixed_dictionaries(
    {
        **{n: st.none() | st.floats() | st.booleans() for n in ("age", "size", "unused")},
        **{n: st.integers(0, 120) | st.booleans() for n in ("id", "small", "count", "huge")},
        **{n: st.sampled_from(["Graz", "Łódź", "groß", None]) for n in ("city", "größe")},
        "flag": st.booleans(),
        "level": st.integers(),
    }
)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@settings(max_examples=60, deadline=None)
@given(st.lists(likely, min_size=1, max_size=4), st.data())
def test_random_rows(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        rows[0][data.draw(st.sampled_from(sorted(KINDS)))] = data.draw(values)
    agree(plan(), rows[0])
    agree(plan(), rows)
    agree(
        plan(),
        {name: [row[name] for row in rows] for name in data.draw(st.permutations(sorted(KINDS)))},
    )
    agree(plan(), [[row[name] for name in KINDS] for row in rows])


def test_the_wrong_names() -> None:
    short = {name: value for name, value in ORDINARY.items() if name != "age"}
    rows: list[Any] = [short, {**ORDINARY, "more": 1}, {**short, "ages": 1}, {**short, 3: 4}, {}]
    for row in rows:
        agree(plan(), row)
        agree(plan(), [row])
        agree(plan(), [ORDINARY, row])
    wrong: list[Any] = [None, 3, "x", [None], [{}], ({},), {"age": []}, np.zeros(3), [], [[]]]
    wrong += [{**short, Word("age"): 2.0}, [1.0], [ORDINARY, [1]], [[1], ORDINARY], [()]]
    for data in (*wrong, np.empty(0, object)):
        agree(plan(), data)


def test_names_are_known_by_what_they_say() -> None:
    """A caller's strings are other objects than the plan's, of any width, in any order."""
    names = ["age", "größe", "名前", "𝄞", "é", "e"]
    kind = Record(tuple((name, Scalar("float64")) for name in names))
    made = oven.bake(source("x", kind).columns(names).multiply([float(k) for k in range(1, 7)]))
    others = [b"".join([name.encode()]).decode() for name in names]
    assert all(one is not other for one, other in zip(names[:4], others, strict=False))
    row = {name: 10.0**k for k, name in enumerate(others)}
    for data in (row, dict(reversed(row.items())), [row, dict(sorted(row.items()))]):
        assert isinstance(agree(made, data), list)
    first, *_, last = others
    agree(made, {last: 1.0, first: 2.0})
    agree(made, {**row, "größe ": row.pop("größe")})


def test_columns_that_nobody_reads_may_be_missing() -> None:
    kind = Record((("a", Scalar("float64")), ("b", Scalar("float64"))), unread=("b",))
    made = oven.bake(source("x", kind).field("a") + 1.0)
    assert type(made.entry()).__name__ == "builtin_function_or_method"
    for row in ({"a": 1}, {"a": 1, "b": "x"}, {"b": 1}, {"a": 1, "c": 2}, {"a": 2, "b": [1]}):
        agree(made, row)
        agree(made, [row])


def test_arrays_are_rows_of_numbers() -> None:
    made = of_floats()
    for rows in (np.arange(3.0), np.arange(6.0).reshape(2, 3), np.ones(3, "float32"), [1, 2, 3]):
        assert isinstance(agree(made, rows), list)
    agree(made, np.arange(4.0))
    agree(made, {"p": 1.0, "q": 2.0, "r": 3.0})  # by position, as there are none of the names
    assert made.run(np.arange(6.0).reshape(2, 3))["output"].shape == (2, 2)


@pytest.mark.parametrize("text", ["", "bad good é", "good " * 3000, "é" * 70_000])
def test_documents_beside_numbers(text: str) -> None:
    row: dict[str, Any] = {"review": text, "stars": 3}
    many: list[Any] = [row, [row] * 3, [text, 3.5], {"review": [text, "bad"], "stars": [1, None]}]
    for data in many:
        assert isinstance(agree(of_text(), data), list)
    for data in ({"review": None, "stars": 3}, [row, {"review": 3, "stars": 3}]):
        agree(of_text(), data)


def test_single_columns() -> None:
    for data in ({"a": 1, "city": "Graz"}, {"city": ["Graz", None], "a": [1.5, 2]}):
        assert isinstance(agree(of_columns(), data), list)
    wrong: list[Any] = [{"a": 1}, {"a": 1, "city": 3}, [1, "Graz"], [{"a": 1, "city": "Graz"}]]
    for data in (*wrong, [1], [None]):
        agree(of_columns(), data)


def test_large_blocks() -> None:
    rows = [{**ORDINARY, "small": i % 100, "city": "Łódź" * (i % 9)} for i in range(4000)]
    assert isinstance(agree(plan(), rows), list)
    assert isinstance(agree(of_floats(), [[1.0, 2, None]] * 90_000), list)


def test_nothing_is_leaked() -> None:
    held: list[Any] = [ORDINARY, list(ORDINARY.values()), [ORDINARY], {**ORDINARY, "age": "x"}]
    held += ["Łódź groß", [{**ORDINARY, "city": "Łódź groß"}], {**ORDINARY, "id": 2**70}]
    leaks_nothing(plan().entry(), held, ORDINARY.values())


def test_threads_do_not_meet() -> None:
    rows = [{**ORDINARY, "age": float(i), "city": "Łódź" * (i % 3)} for i in range(20)]
    threads_do_not_meet(plan().entry(), [*rows, *(rows[start:] * 50 for start in range(5))])


@pytest.mark.parametrize("many", [False, True])
def test_a_row_may_change_while_the_answers_are_made(many: bool) -> None:  # noqa: FBT001
    def made(turn: int) -> tuple[Any, Any]:
        row = dict(ORDINARY)
        data: Any = [row, dict(ORDINARY)] if many else row
        return data, data if turn % 2 else row

    data_may_change(plan().entry(), made)
