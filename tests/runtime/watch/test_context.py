"""Tests given a context: quiet when only the context changes, and not when rows do in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.experiments.watch_causes import alarms
from flour.core.errors import FlourError
from runtime.watch import context_test, two_sample_test


def shops(
    rng: np.random.Generator, shares: list[float], more: float = 0.0, rows: int = 400
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Countries, and what is bought there; `more` is bought in one of them, by itself."""
    place = rng.choice(3, rows, p=shares)
    spent = 1.5 * place + more * (place == 0) + rng.normal(size=rows)
    size = np.array(["S", "M", "L"], object)[np.minimum(2, place + (rng.random(rows) < 0.3))]
    country = np.array(["NO", "IT", "CH"], object)[place]
    return {"country": country}, {"spent": spent, "size": size}


def test_a_change_of_context_alone_rarely_alarms() -> None:
    plain, given = alarms(changed=False, worlds=20)
    assert plain >= 95
    assert given <= 10


def test_a_change_of_rows_in_their_context_alarms() -> None:
    assert alarms(changed=True, worlds=20)[1] >= 90


@pytest.mark.parametrize(("more", "found"), [(0.0, 0), (1.0, 12)])
def test_contexts_and_rows_may_be_words(more: float, found: int) -> None:
    quiet = loud = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        old, rows = shops(rng, [0.5, 0.2, 0.3])
        new, others = shops(rng, [0.2, 0.6, 0.2], more)
        loud += two_sample_test(rows, others, seed=seed).p_value <= 0.05
        quiet += context_test(rows, old, others, new, seed=seed).p_value <= 0.05
    assert loud >= 11
    assert abs(quiet - found) <= 2


def test_what_did_not_change_alarms_as_often_as_the_level_says() -> None:
    values = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(300, 2))
        values.append(two_sample_test(rows[:150], rows[150:], seed=seed).p_value)
    assert sum(each <= 0.1 for each in values) <= 9
    assert 0.35 < np.mean(values) < 0.65


def test_a_seed_makes_it_repeatable_and_missing_values_count() -> None:
    rng = np.random.default_rng(0)
    rows, context = rng.normal(size=(200, 2)), rng.normal(size=200)
    gone = np.where(rng.random((200, 2)) < 0.4, np.nan, rows)
    first, second = (context_test(rows, context, gone, context, seed=3) for _ in range(2))
    assert first == second
    assert first.p_value < 0.05


def test_where_no_context_is_in_both_nothing_is_told() -> None:
    rng = np.random.default_rng(0)
    rows, others = rng.normal(size=(200, 1)), rng.normal(size=(200, 1)) + 5
    apart = context_test(rows, np.zeros(200), others, np.ones(200) * 9)
    assert apart.p_value > 0.05


def test_rows_without_contexts_are_refused() -> None:
    rows = np.zeros((20, 2))
    with pytest.raises(FlourError, match="each row has a context"):
        context_test(rows, np.zeros(19), rows, np.zeros(20))
    with pytest.raises(FlourError, match="four or more"):
        two_sample_test(rows[:2], rows)
    with pytest.raises(FlourError, match="same columns"):
        two_sample_test({"a": rows[:, 0]}, {"b": rows[:, 0]})


@pytest.mark.parametrize("rows", [50, 300])
def test_contexts_that_only_one_side_has_are_not_compared(rows: int) -> None:
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=rows), rng.normal(size=rows) + 3
    assert two_sample_test(old, new).p_value < 0.05
    for was, is_now in (
        (rng.normal(size=rows), rng.normal(size=rows) + 20),
        ({"country": np.full(rows, "NO")}, {"country": np.full(rows, "IT")}),
    ):
        assert context_test(old, was, new, is_now).p_value == 1.0


def test_rows_may_be_lists_and_frames() -> None:
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=100), rng.normal(size=100)
    wanted = two_sample_test({"age": old}, {"age": new})
    assert two_sample_test({"age": old.tolist()}, {"age": new.tolist()}) == wanted
    assert two_sample_test(pd.DataFrame({"age": old}), pd.DataFrame({"age": new})) == wanted
    assert two_sample_test(old.tolist(), new.tolist()) == wanted
    with pytest.raises(FlourError, match="columns by name"):
        two_sample_test([{"age": 1.0}] * 9, [{"age": 1.0}] * 9)
