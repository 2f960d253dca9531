"""From how many rows on an entry releases the GIL is measured, call by call."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

import flour
import oven
from oven.entry.builtin import learn_release

ROW = np.arange(4.0)


def bound(call: Any, word: str) -> int:
    table = call.__self__
    return int(table[table.code.words.index(word)])


def test_the_bound_moves_with_what_calls_take() -> None:
    plan = oven.bake(flour.from_sklearn(LinearRegression().fit(np.eye(4), ROW)))
    call = plan.entry()
    before = call(ROW)
    learn_release(call, 100, long=True)
    assert bound(call, "RELEASE_ROWS") == 100
    learn_release(call, 200, long=True)
    assert bound(call, "RELEASE_ROWS") == 100, "what is longer says nothing new"
    learn_release(call, 100, long=False)
    assert bound(call, "RELEASE_ROWS") == 101, "the measurement before was disturbed"
    learn_release(call, 1, long=True)
    assert bound(call, "RELEASE_ROWS") == 1
    assert call(ROW) == before, "the same answer without the GIL"


def test_functions_without_a_table_are_left_alone() -> None:
    learn_release(len, 1, long=True)
    learn_release(lambda row: row, 1, long=True)
