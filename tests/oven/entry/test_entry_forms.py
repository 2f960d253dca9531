"""Every form of data x every kind of plan: entry == text of the entry in checked memory ==
`Plan.run` == reference, with the same errors; and the entry's errors of its own.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import FlourError
from flour.core.types import Category, Record, Scalar, Text, Type, Vector
from flour.data.batch import BatchReader
from flour.language.flow import Flow, source
from oven.compiler import cache as code_cache
from oven.compiler import native, source_check
from oven.compiler.intrinsics.vocabulary import vocabulary
from oven.entry import array_forms, forms, generator
from oven.entry.array_entry import around
from oven.entry.interpreter import object_layout
from oven.plans.plan import Plan
from tests import checked_entry
from tests.oven.entry.test_record_entry import KINDS

pytestmark = pytest.mark.skipif(object_layout() is None, reason="this interpreter has no entries")

ROWS = 4
Row = Mapping[str, Any]


# --- plans ----------------------------------------------------------------------------------------


def _vector(dtype: str) -> Flow:
    rng = np.random.default_rng(3)
    weights, bias = rng.normal(size=(3, 4)).astype(dtype), rng.normal(size=3).astype(dtype)
    made = source("x", Vector(4, dtype)).linear(weights, bias)
    label = made.arg_max().take(["no", "né", "yes"])
    return flour.outputs(label=label, probabilities=made.softmax(), top=made.max())


def _dtypes() -> Flow:
    x = source("x", Vector(4)).clip([-100.0], [100.0])
    one, positive = x.element(2), x.element(1).clip([0.0], [200.0])
    kinds = ("float32", "int64", "int32", "int16", "int8", "bool")
    made = {kind: one.cast(kind) for kind in kinds}
    made |= {kind: positive.cast(kind) for kind in ("uint64", "uint32", "uint16", "uint8")}
    return flour.outputs(float64=one, **made, **{f"many_{kind}": x.cast(kind) for kind in kinds})


def _review(x: Flow) -> Flow:
    words = ["bad", "good", "good day", "é", "한국"]
    counts = x.lower().tokenize(r"\w+").word_ngrams(words, 1, 2)
    scores = counts.linear(np.random.default_rng(0).normal(size=(2, 5)), [0.0, 0.5])
    return flour.outputs(label=scores.arg_max().take(["no", "é"]), scores=scores, top=scores.max())


_KINDS = {name: kind for name, kind in KINDS.items() if name != "level"}


def _record() -> Flow:
    """Numbers of every kind, converted ones, and codes of strings."""
    x = source("x", Record(tuple(_KINDS.items())))
    whole = {name: x.field(name) + x.field(name) for name in ("id", "small", "count", "huge")}
    mixed = x.columns(["age", "id", "size", "flag"]).linear(np.ones((2, 4)), [0.5, 1.0])
    cities = x.field("city").one_hot(["Graz", "Łódź", ""]).to_dense()
    sizes = x.field("größe").one_hot(["klein", "groß"]).to_dense()
    label = cities.arg_max().take(["no", "né", "yes"])
    return flour.outputs(label=label, both=cities.concat(sizes), mixed=mixed, **whole)


def _inputs() -> Flow:
    """Several inputs: numbers, vectors of numbers and of strings, a document."""
    x, words = source("x", Vector(3, "float32")), source("words", Vector(2, "string"))
    y, text = source("y", Scalar("float64")), source("text", Text())
    codes = words.categorise_text(["Graz", "é"], [0, 1], [0, 1, 2], [2, 2], [3, 3], [4, 4])
    counts = text.lower().tokenize(r"\w+").word_ngrams(["bad", "good"], 1, 1).to_dense()
    return flour.outputs(x=x + x, y=y + y, codes=codes, counts=counts)


def _numbers() -> Flow:
    """A record that is a vector of float64, which arrays go into as they are."""
    x = source("x", Record(tuple((name, Scalar("float64")) for name in "abcd")))
    return flour.outputs(y=x.columns([*"abcd"]).linear(np.ones((2, 4)), [1.0, 2.0]))


def _one_column() -> Flow:
    return _review(source("X", Record((("review", Text()),))).field("review"))


PROGRAMS: dict[str, Callable[[], Flow]] = {
    "vector": lambda: _vector("float64"),
    "float32": lambda: _vector("float32"),
    "dtypes": _dtypes,
    "document": lambda: _review(flour.text("review")),
    "column": _one_column,
    "record": _record,
    "numbers": _numbers,
    "inputs": _inputs,
}


@cache
def plan(name: str) -> Plan:
    """The plan of a program."""
    return oven.bake(PROGRAMS[name]())


_TEXTS = ["bad", "", "Good day é", "한국 good \U0001f600 nul \0 bad", "x" * 300 + " good"]
_CITIES = ["Graz", "Łódź", "", "klein", "groß", "\x00z"]


def _value(kind: Type, row: int) -> Any:
    """A value of this type, exact in its dtype; a list for a vector."""
    match kind:
        case Vector(width, dtype):
            one: Type = Scalar(dtype)
            return [_value(one, row + place) for place in range(width)]
        case Text():
            return _TEXTS[row % len(_TEXTS)]
        case Scalar("string") | Category("string"):
            return _CITIES[row % len(_CITIES)]
        case Scalar("bool"):
            return row % 2 == 1
        case Scalar("float64" | "float32"):
            return (row * 7 % 5) / 2 - 1.0
    return row * 3 % 11


def columns_of(made: Plan) -> dict[str, Type]:
    """Every value of a row by name."""
    match [*made.inputs.values()]:
        case [Record() as kind]:
            return dict(kind.fields)
    return dict(made.inputs)


def rows_of(made: Plan) -> list[dict[str, Any]]:
    kinds = columns_of(made)
    return [{name: _value(kind, row) for name, kind in kinds.items()} for row in range(ROWS)]


# --- forms ----------------------------------------------------------------------------------------


def _arrays(made: Plan, rows: list[dict[str, Any]], strings: Any = object) -> dict[str, Any]:
    found = {}
    for name, kind in columns_of(made).items():
        dtype = strings if isinstance(kind, Text) else kind.dtype  # type: ignore[union-attr]  # all others have one
        dtype = strings if dtype == "string" else dtype
        found[name] = np.array([row[name] for row in rows], dtype)
    return found


def _is_row(made: Plan) -> bool:
    """Whether a row is all there is in the plan's one input."""
    return len(made.inputs) == 1 and not isinstance(next(iter(made.inputs.values())), Record)


def _bare(made: Plan, row: dict[str, Any]) -> Any:
    return next(iter(row.values())) if _is_row(made) else [*row.values()]


def _block(made: Plan, rows: list[dict[str, Any]]) -> Any:
    """The rows as one array of the plan's own dtype."""
    (kind, *_) = made.inputs.values()
    dtype = kind.dtype if isinstance(kind, Vector) else "float64"
    numbers = all(isinstance(v, float | list) for row in rows for v in row.values())
    flat = [_bare(made, row) for row in rows]
    return np.array(flat, dtype if numbers and len(made.inputs) == 1 else object)


class Data(NamedTuple):
    """What is given in some form: the rows, and the plan that they are for."""

    plan: Plan
    rows: list[dict[str, Any]]


class Hostile(list):  # type: ignore[type-arg]  # of anything
    """A subclass, which may mean something else by everything."""


class Word(str):
    """Another."""

    __slots__ = ()


def _swapped(array: Any) -> Any:
    return array.astype(array.dtype.newbyteorder())


def _scalars(row: dict[str, Any]) -> dict[str, Any]:
    numpy = {float: np.float64, int: np.int64, bool: np.bool_}
    return {name: numpy.get(type(value), lambda v: v)(value) for name, value in row.items()}


def _changed(rows: list[dict[str, Any]], value: Any, place: int = 0) -> list[dict[str, Any]]:
    """The rows with another value in the second one."""
    name = [*rows[1]][place % len(rows[1])]
    return [rows[0], {**rows[1], name: value}, *rows[2:]]


FORMS: dict[str, Callable[[Data], Any]] = {
    # A row.
    "row": lambda d: _bare(d.plan, d.rows[0]),
    "row as a tuple": lambda d: tuple(_bare(d.plan, d.rows[0])),
    "row as an array": lambda d: _block(*d)[0],
    "row of objects": lambda d: np.array(_block(*d)[0], ndmin=1).astype(object),
    "dict": lambda d: d.rows[0],
    "dict reversed": lambda d: dict(reversed(d.rows[0].items())),
    "dict of equal keys": lambda d: {"".join([*name]): value for name, value in d.rows[0].items()},
    "dict of numpy's scalars": lambda d: _scalars(d.rows[0]),
    "dict of float32": lambda d: {k: np.float32(1) for k in d.rows[0]},
    "dict of holes": lambda d: dict.fromkeys(d.rows[0]),
    # A block.
    "block": lambda d: _block(*d),
    "empty block": lambda d: _block(*d)[:0],
    "pickled block": lambda d: pickle.loads(pickle.dumps(_block(*d))),
    "swapped block": lambda d: _swapped(_block(*d)),
    "strided block": lambda d: np.repeat(_block(*d), 2, axis=0)[::2],
    "block by columns": lambda d: np.asfortranarray(_block(*d)),
    "list of rows": lambda d: [_bare(d.plan, row) for row in d.rows],
    "tuple of rows": lambda d: tuple(_bare(d.plan, row) for row in d.rows),
    "list of tuples": lambda d: [tuple(_bare(d.plan, row)) for row in d.rows],
    "dicts": lambda d: d.rows,
    "dicts, some reversed": lambda d: [d.rows[0], dict(reversed(d.rows[1].items())), *d.rows[2:]],
    "dicts of numpy's scalars": lambda d: [*map(_scalars, d.rows)],
    "lists by name": lambda d: {k: [row[k] for row in d.rows] for k in d.rows[0]},
    "tuples by name": lambda d: {k: tuple(row[k] for row in d.rows) for k in d.rows[0]},
    "arrays by name": lambda d: _arrays(*d),
    "arrays of one column": lambda d: {k: v[:, None] for k, v in _arrays(*d).items()},
    "strided arrays": lambda d: {k: np.repeat(v, 2, 0)[::2] for k, v in _arrays(*d).items()},
    "arrays reversed": lambda d: dict(reversed(_arrays(*d).items())),
    "pickled arrays": lambda d: pickle.loads(pickle.dumps(_arrays(*d))),
    "numpy's characters": lambda d: _arrays(*d, np.str_),
    "swapped characters": lambda d: {k: _swapped(v) for k, v in _arrays(*d, np.str_).items()},
    # What is handed on, and what is wrong.
    "subclass": lambda d: Hostile(_bare(d.plan, row) for row in d.rows),
    "dicts with a subclass": lambda d: _changed(d.rows, Word("Graz"), -3),
    "nothing": lambda _: None,
    "empty list": lambda _: [],
    "empty dict": lambda _: {},
    "list of nothing": lambda _: [None] * 4,
    "a key missing": lambda d: {k: v for k, v in d.rows[0].items() if k != next(iter(d.rows[0]))},
    "a key more": lambda d: {**d.rows[0], "more": 1.0},
    "another key": lambda d: dict([*d.rows[0].items()][1:]) | {7: 1.0},
    "a short row": lambda d: [[*_bare(d.plan, row)][: 3 - i] for i, row in enumerate(d.rows)],
    "lists of other lengths": lambda d: {k: [d.rows[0][k]] * (1 + len(k) % 2) for k in d.rows[0]},
    "arrays of other lengths": lambda d: {k: v[: 1 + len(k) % 2] for k, v in _arrays(*d).items()},
    "arrays of other dtypes": lambda d: {k: np.zeros(3, "complex64") for k in d.rows[0]},
    "no dimensions": lambda d: {k: np.array(1.0) for k in d.rows[0]},
    "rows of another kind": lambda d: [d.rows[0], [*d.rows[1].values()]],
    "a huge number": lambda d: (
        [10**400 for _ in d.rows[0]] if len(d.rows[0]) > 1 else [10**400] * 4
    ),
}


def _with(value: Any, place: int) -> Callable[[Data], Any]:
    return lambda d: _changed(d.rows, value, place)


FORMS |= {
    f"{value!r:.20} in field {place}": _with(value, place)
    for value in (None, np.nan, 2**53 + 1, 2**64, -1, 0.5, True, "7", "\ud800", b"x", np.float32(2))
    for place in (0, 1, 2, 7)
}
#: Forms that each kind of plan takes in machine code: what is tested here must not go around it.
NATIVE = {
    "vector": [
        *("row", "row as a tuple", "row as an array", "block", "strided block", "pickled block")
    ],
    "document": ["row", "dict", "list of rows", "tuple of rows", "block", "arrays by name"],
    "column": ["dict", "lists by name", "arrays by name", "numpy's characters"],
    "record": [
        *("dict", "dict reversed", "dict of equal keys", "dict of numpy's scalars", "row"),
        *("dicts", "lists by name", "tuples by name", "list of rows", "list of tuples"),
        *("arrays by name", "arrays of one column", "strided arrays", "numpy's characters"),
    ],
    "numbers": ["dict", "row", "row as an array", "block", "dicts", "arrays by name"],
    "inputs": ["arrays by name", "strided arrays", "pickled arrays", "numpy's characters"],
}
NATIVE |= dict.fromkeys(("float32", "dtypes"), NATIVE["vector"])


_REFERRED = ("block", "dicts", "lists by name", "arrays by name", "numpy's characters")


def _outcome(call: Callable[[Any], Any], data: Any) -> Any:
    try:
        return tuple(call(data))
    except (FlourError, OverflowError, UnicodeError, TypeError, ValueError) as error:
        return type(error), str(error)


def _same(got: Any, want: Any) -> None:
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        assert type(mine) is type(theirs), (got, want)
        if isinstance(theirs, np.ndarray):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(mine, theirs)


def _fresh(form: str, made: Plan) -> Any:
    try:
        return FORMS[form](Data(made, rows_of(made)))
    except (ValueError, TypeError, OverflowError):
        pytest.skip("there is no such data for this plan")


def _seen(made: Plan, handed_on: list[object]) -> Callable[[Any], Callable[[object], Any]]:
    """What holds the plan's methods for the entry; data that machine code does not take is noted,
    and no entry of another plan takes it.
    """

    def answer(data: object) -> dict[str, Any]:
        handed_on.append(data)
        return made.answer(data)

    return lambda method: answer if method == made.answer else lambda _: None


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_answer_is_the_same_on_every_way(name: str) -> None:
    for form in FORMS:
        with suppress(pytest.skip.Exception):
            answered_alike(name, form)


def answered_alike(name: str, form: str) -> None:
    """Machine code, its text in checked memory and the long way agree."""
    made = plan(name)
    handed_on: list[object] = []
    entry: Any = made._opened(_seen(made, handed_on))
    data = _fresh(form, made)
    want = _outcome(around(made.answer, BatchReader(made.inputs)), data)
    got = _outcome(entry, data)
    _same(got, want)
    assert not (handed_on and form in NATIVE[name])
    handed_on.clear()
    kept = sys.getrefcount(data)
    answers, calls = _checked(entry, data)
    _same(answers, want)
    assert calls is None or calls.left == 0
    handed_on.clear()
    if calls is not None and data is not None:  # an error's traceback holds the data
        del answers
        assert sys.getrefcount(data) == kept
    if form in _REFERRED and calls is not None:
        reference = made.flow.reference(data).values()
        for mine, theirs in zip(got, reference, strict=True):
            if np.asarray(theirs).dtype.kind == "f":
                np.testing.assert_allclose(mine, theirs, rtol=1e-5)
            else:
                assert mine.tolist() == np.asarray(theirs).tolist()


def _checked(entry: Any, data: Any) -> tuple[Any, Any]:
    try:
        return checked_entry.run(entry, data)
    except (FlourError, OverflowError, UnicodeError, TypeError, ValueError) as error:
        return (type(error), str(error)), None


@pytest.mark.parametrize("form", ["row", "dicts", "list of rows", "block", "arrays by name"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("failing", ["PyTuple_New", "PyArray_Empty", "PyMem_RawMalloc"])
def test_without_memory_it_is_an_error_and_nothing_is_lost(
    name: str, form: str, failing: str
) -> None:
    made = plan(name)
    entry: Any = made.entry()
    data = _fresh(form, made)
    want = _outcome(entry, data)
    for turn in range(4):
        try:
            got, calls = checked_entry.run(entry, data, _failing(failing, turn))
        except MemoryError:
            continue
        except FlourError as error:
            got, calls = (type(error), str(error)), None
        _same(got, want)
        assert calls is None or calls.left == 0


_WIDE = tuple(f"x{number}" for number in range(70))


@pytest.fixture(scope="module")
def wide() -> Plan:
    """Of a record with more columns than are copied together."""
    kinds = ("float64", "float32", "int16", "bool")
    fields = {name: Scalar(kinds[place % 4]) for place, name in enumerate(_WIDE)}
    x = source("x", Record(tuple(fields.items())))
    weights = np.random.default_rng(0).normal(size=(1, len(_WIDE)))
    return oven.bake(x.columns([*_WIDE]).linear(weights, [0.5]).named("y"))


def _columns(made: Plan, rows: int) -> dict[str, Any]:
    rng, (kind,) = np.random.default_rng(rows), made.inputs.values()
    assert isinstance(kind, Record)
    return {
        name: rng.integers(0, 9, 2 * rows).astype(field.dtype)[:: 1 + place % 2][:rows]  # type: ignore[union-attr]
        for place, (name, field) in enumerate(kind.fields)
    }


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 64, 100])
def test_columns_are_copied_in_turns(wide: Plan, rows: int) -> None:
    data = _columns(wide, rows)
    want = tuple(wide.answer(data).values())
    entry: Any = wide.code.column_entry({}, wide.answer)
    _same(entry(data), want)
    got, calls = checked_entry.run(entry, data)
    _same(got, want)
    assert calls.left == 0


@pytest.mark.parametrize("spare", [0, 100, 1 << 20, 1 << 25])
def test_the_memory_of_a_call_is_left_for_the_next(wide: Plan, spare: int) -> None:
    """The larger block is, if it is not too large for that; all others are freed."""
    data = _columns(wide, 100)
    called: list[str] = []
    got, calls = checked_entry.run(
        wide.code.column_entry({}, wide.answer), data, _noted(called), spare
    )
    _same(got, tuple(wide.answer(data).values()))
    assert calls.left == 0
    is_used = spare >= 1 << 20
    assert called.count("PyMem_RawMalloc") == (not is_used)
    if is_used:
        assert calls.left_bytes == (spare if spare == 1 << 20 else 0)
    else:
        assert 100 * len(_WIDE) * 2 < calls.left_bytes < 1 << 18


def _noted(called: list[str]) -> Callable[[str], bool]:
    def fails(name: str) -> bool:
        called.append(name)
        return False

    return fails


def _failing(name: str, turn: int) -> Callable[[str], bool]:
    """Whether a call of this function fails: the one of this number does."""
    count = iter(range(100))
    return lambda called: called == name and next(count) == turn


# --- the text -------------------------------------------------------------------------------------

ENTRIES = [
    *(forms.vectors_entry, forms.documents_entry, forms.records_entry),
    *(array_forms.columns_entry, array_forms.packed_entry, forms.named_entry),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda each: each.__name__)
def test_the_text_is_arithmetic(entry: generator.Entry) -> None:
    made, layout = generator.entry_code(entry), object_layout()
    assert made is not None
    assert layout is not None
    assert (made.text, made.words) == generator.generated(entry, layout)
    assert (made.name, made.key) == (entry.__name__, code_cache.key(made.text))
    source_check.vet(made.text, made.name, vocabulary(), 2)
    assert native.ir_text(made.text, made.name), "our own compiler takes it"
