"""Rows that machine code lays out: chunks of them give what whole blocks give."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from flour.core.errors import FlourError
from flour.core.types import Scalar, Text, Vector
from oven.plans.plan import Plan
from tests.oven.entry.answers import answer, leaks_nothing
from tests.oven.entry.test_columns_entry import columns, objects, of_one, of_vectors, vectors
from tests.oven.entry.test_record_entry import of_floats, plan


def in_chunks(made: Plan, data: Any, size: int) -> Any:
    """The answers of a block that is taken through the steps in chunks."""

    def call(block: Any) -> Any:
        work = made.begin(block)
        for start in range(0, max(work.rows, 1), size):
            chunk = work.chunk(start, min(start + size, work.rows))
            for number in range(work.steps):
                work.step(number, chunk)
        return tuple(work.finish().values())

    return answer(call, data)


BLOCKS: dict[str, tuple[Any, Any]] = {
    "a record": (plan, columns(301)),
    "a record with strings as objects": (plan, objects(columns(301))),
    "vectors": (of_vectors, vectors(301)),
    "vectors with strings as objects": (of_vectors, objects(vectors(301))),
    "documents": (lambda: of_one(Text()), ["bad é", "", "good 🥨 bad" * 9] * 100),
    "an array of documents": (lambda: of_one(Text()), np.array(["bad é", "good"] * 100)[:, None]),
    "strings": (lambda: of_one(Vector(2, "string")), {"x": np.array([["a", "é"]] * 99)}),
    "one number each": (lambda: of_one(Scalar("float64")), {"x": np.arange(99.0)}),
    "floats by name": (of_floats, {name: np.arange(99.0) for name in "abc"}),
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("size", [50, 1000])
def test_chunks_are_parts_of_the_whole(name: str, size: int) -> None:
    make, data = BLOCKS[name]
    made: Plan = make()
    laid = made.code.pack_rows(data)
    assert laid is not None
    work = made.begin(data)
    assert (laid.rows, work.uncut) == (work.rows, False)
    want = answer(lambda block: tuple(made.run(block).values()), data)
    assert isinstance(want, list), want
    assert in_chunks(made, data, size) == want


@pytest.mark.parametrize(
    "data",
    [
        {**columns(9), "city": np.array(["Graz", 3, None] * 3, object)},
        {**columns(9), "age": np.arange(8.0)},
        {**columns(9), "id": np.arange(9, dtype="int32")},
        {name: column for name, column in columns(9).items() if name != "age"},
        {name: column.tolist() for name, column in columns(9).items()},
        columns(0),
        [],
        None,
    ],
)
def test_other_data_goes_through_python(data: Any) -> None:
    assert plan().code.pack_rows(data) is None
    assert in_chunks(plan(), data, 4) == answer(
        lambda block: tuple(plan().answer(block).values()), data
    )


def test_an_error_in_a_document_is_the_callers_at_once() -> None:
    for wrong in (["bad", 3], ["bad", None], np.array(["bad", b"x"], object)):
        with pytest.raises(FlourError):
            of_one(Text()).begin(wrong)


def test_rows_outlive_their_data() -> None:
    data = columns(200, 3)
    want = answer(lambda block: tuple(plan().run(block).values()), data)
    work = plan().begin(objects(data))
    for column in data.values():
        column[:] = column[::-1].copy()
    gc.collect()
    for start in range(0, 200, 20):
        chunk = work.chunk(start, start + 20)
        for number in range(work.steps):
            work.step(number, chunk)
    assert answer(lambda _: tuple(work.finish().values()), None) == want


def test_nothing_is_leaked() -> None:
    held: list[Any] = [columns(3), objects(columns(3)), {**columns(3), "age": np.zeros(2)}]
    words = [word for word in held[1]["city"] if len(word) > 1]

    def packed(data: Any) -> list[Any]:
        plan().code.pack_rows(data)
        return []

    leaks_nothing(packed, held, [*words, *(part for item in held for part in item.values())])
