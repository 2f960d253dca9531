"""Entries behind entries: made when somebody first goes through them, and never again."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import flour
import oven
from oven.entry import columns_entry
from oven.entry.columns_entry import LazyEntry
from tests.oven.entry import test_text_entry as documents

ROWS = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is noted whenever entries for arrays are made, by a process that has their code."""
    _entry(0.0)
    noted: list[object] = []
    known = columns_entry.open_columns_entry

    def noting(*given: Any) -> Any:
        noted.append(given)
        return known(*given)

    monkeypatch.setattr(columns_entry, "open_columns_entry", noting)
    return noted


def _entry(bias: float) -> Any:
    return oven.bake(flour.vector("x", 3).linear([[1.0, 2.0, 3.0]], [bias]).element(0)).entry()


def test_arrays_by_name_have_a_entry_made_when_they_first_come(made: list[object]) -> None:
    entry = _entry(1.0)
    want = ROWS @ [1.0, 2.0, 3.0] + 1.0
    assert entry(ROWS[1]) == (want[1],)
    np.testing.assert_array_equal(entry(ROWS)[0], want)
    assert not made
    for _ in range(3):
        np.testing.assert_array_equal(entry({"x": ROWS})[0], want)
    np.testing.assert_array_equal(entry(ROWS.astype(np.float64).tolist())[0], want)
    assert len(made) == 1


def test_an_array_of_another_width_does_not_need_it(made: list[object]) -> None:
    entry = _entry(1.5)
    for dtype in (np.float32, np.int64, np.uint8):
        for rows in (ROWS.astype(dtype), ROWS[1].astype(dtype)):
            want = rows @ np.array([1.0, 2.0, 3.0]) + 1.5
            np.testing.assert_allclose(entry(rows)[0], want, rtol=1e-6)
    assert not made
    np.testing.assert_array_equal(entry(np.asfortranarray(ROWS))[0], ROWS @ [1.0, 2.0, 3.0] + 1.5)
    assert len(made) == 1  # which reads columns where they lie


def test_afterwards_machine_code_goes_there_directly(
    made: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = _entry(2.0)
    entry({"x": ROWS})

    def never(*_: object) -> None:
        raise AssertionError("the promise is called again")

    monkeypatch.setattr(LazyEntry, "__call__", never)
    np.testing.assert_array_equal(entry({"x": ROWS})[0], ROWS @ [1.0, 2.0, 3.0] + 2.0)
    assert len(made) == 1


def test_documents_by_name_have_theirs_later_too(made: list[object]) -> None:
    documents.plan().entry()({"review": np.array(["bad"])})  # the code is there now
    made.clear()
    entry = oven.bake(documents.program(flour.text("review"))).entry()
    want = entry(["good day", "bad bad"])
    assert not made
    for _ in range(2):
        found = entry({"review": np.array(["good day", "bad bad"])})
        for one, other in zip(found, want, strict=True):
            np.testing.assert_array_equal(one, other)
    assert len(made) == 1


def test_nothing_outlives_the_entry(made: list[object]) -> None:
    gc.disable()
    try:
        entry = _entry(3.0)
        entry({"x": ROWS})
        table = weakref.ref(entry.__self__)
        del entry
        made.clear()
        assert table() is None
    finally:
        gc.enable()


def test_threads_that_come_at_once_all_get_their_answers(made: list[object]) -> None:
    entry = _entry(4.0)
    want = (ROWS @ [1.0, 2.0, 3.0] + 4.0).tolist()
    ready = threading.Barrier(8)
    found: list[list[float]] = []

    def ask() -> None:
        ready.wait()
        found.extend(entry({"x": ROWS})[0].tolist() for _ in range(50))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [want] * 400
    assert 1 <= len(made) <= 8
