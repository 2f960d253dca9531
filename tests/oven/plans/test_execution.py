"""Executions: any cut into chunks, in any order, by any thread, gives what `run` gives."""

from __future__ import annotations

import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import flour
import oven
from flour import Flow
from flour.core.errors import InputError
from oven.plans.execution import Execution

WORDS = "the cat sat on a mat and saw nothing of that at all".split()  # noqa: SIM905 (shorter)


def numbers() -> tuple[Flow, Any]:
    x = flour.vector("x", 5).subtract([1.0, 2.0, 3.0, 4.0, 5.0])
    label = x.arg_max().take(["a", "b", "c", "d", "e"])
    return flour.outputs(moved=x, top=x.max(), label=label), np.arange(700.0).reshape(140, 5) % 11


def texts() -> tuple[Flow, Any]:
    rng = random.Random(1)
    documents = [" ".join(rng.choices(WORDS, k=rng.randrange(9))) for _ in range(140)]
    counts = flour.text("t").tokenize().word_ngrams(sorted(set(WORDS))[:6])
    return flour.outputs(counts=counts, score=counts.linear([[1.0] * 6], [0.0])), documents


def record() -> tuple[Flow, Any]:
    row = flour.record(
        "r", {"a": flour.Scalar("float64"), "b": flour.Scalar("float64"), "c": flour.Category()}
    )
    both = row.columns(["b", "a"]).multiply([2.0])
    return flour.outputs(both=both, name=row.field("c")), {
        "c": [None if i % 7 == 0 else str(i % 3) for i in range(140)],
        "a": np.arange(140.0),
        "b": np.arange(140.0) % 3,
    }


def sparse_rows() -> tuple[Flow, Any]:
    data = csr_matrix(np.arange(700.0).reshape(140, 5) % 3)
    x = flour.vector("x", 5, sparse=True)
    return flour.outputs(doubled=x.multiply([2.0]), top=x.max()), data


MADE = {"sparse": sparse_rows, "numbers": numbers, "texts": texts, "record": record}


def through(work: Execution, bounds: list[int], threads: ThreadPoolExecutor, room: int) -> None:
    """Take every chunk through every step, chunks in any order and at the same time."""
    chunks = [work.chunk(start, stop) for start, stop in pairwise(bounds)]
    random.Random(len(bounds)).shuffle(chunks)
    for number in range(work.steps):
        rooms = [bytearray(room) for _ in chunks]
        list(threads.map(work.step, [number] * len(chunks), chunks, rooms))


def agree(got: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    assert list(got) == list(want)
    for name, value in want.items():
        dense = value.toarray() if hasattr(value, "toarray") else np.asarray(value)
        other = got[name]
        found = other.toarray() if hasattr(other, "toarray") else np.asarray(other)
        assert found.dtype == dense.dtype
        np.testing.assert_array_equal(found, dense)


@pytest.mark.parametrize("bounds", [[0, 140], [0, 1, 70, 71, 140], [*range(0, 141, 10)]])
@pytest.mark.parametrize("name", MADE)
def test_chunks_give_the_whole(name: str, bounds: list[int]) -> None:
    flow, data = MADE[name]()
    plan = oven.bake(flow)
    work = plan.begin(data)
    assert work.rows == 140
    with ThreadPoolExecutor(3) as threads:
        through(work, bounds, threads, work.memory_bytes)
    agree(work.finish(), plan.run(data))


def test_data_of_another_width_runs_on_the_variant() -> None:
    flow, data = numbers()
    plan = oven.bake(flow)
    narrow = data.astype(np.float32)
    work = plan.begin(narrow)
    with ThreadPoolExecutor(1) as threads:
        through(work, [0, 3, 140], threads, work.memory_bytes)
    agree(work.finish(), plan.run(narrow))


def test_no_rows() -> None:
    flow, data = numbers()
    plan = oven.bake(flow)
    work = plan.begin(data[:0])
    with ThreadPoolExecutor(1) as threads:
        through(work, [0, 0], threads, work.memory_bytes)
    agree(work.finish(), plan.run(data[:0]))


def test_wrong_data_is_refused_before_any_work() -> None:
    plan = oven.bake(numbers()[0])
    with pytest.raises(InputError):
        plan.begin(np.zeros((3, 4)))


def test_chunks_of_one_run_go_the_short_way() -> None:
    """Rows far apart, single chunks and rows that are refused: as `run` has it."""
    x = flour.vector("x", 3).subtract([1.0, 2.0, 3.0])
    plan = oven.bake(flour.outputs(moved=x, top=x.max()))
    wide = np.arange(900.0).reshape(100, 9)
    for data in (wide[:, :3], wide[::2, 3:6], wide[::-1, :3], wide[:1, :3].astype("float32")):
        work = plan.begin(data)
        for start in range(0, len(data), 7):
            work.step(0, work.chunk(start, min(start + 7, len(data))))
        assert work._bound is not None or data.dtype != np.float64
        expected = plan.run(data)
        for name, found in work.finish().items():
            np.testing.assert_array_equal(found, expected[name])
