"""Causes of drifts: the column with the fault comes first, and one that nothing depends on last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flour
from bench.experiments.watch_causes import numeric_model, table_model, traced
from runtime import Runtime
from runtime.watch import Adwin, Reference, Watch, causes_of
from runtime.watch.rows import Sample


@pytest.mark.parametrize("model", [table_model, numeric_model])
def test_faults_of_one_column_are_traced_to_it(model: Any) -> None:
    right, tried = traced(*model())
    assert tried > 40
    assert right >= 0.9 * tried


def rows(seed: int, count: int = 3000) -> dict[str, Any]:
    """Three columns, of which the score depends on two, on one of them more."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(40, 9, count) for name in ("age", "hours", "height")}


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """A runtime with two endpoints of one program, of which one has a private column."""
    row = flour.record(age=float, hours=float, height=float)
    program = flour.outputs(score=0.1 * row["age"] + 0.03 * row["hours"] + 0.0 * row["height"])
    with Runtime(executors=1) as made:
        made.register("fraud", program, background=False)
        made.register("secret", program, background=False, notes={"private": ["age"]})
        yield made.wait(60)


def test_columns_explain_what_goes_away_with_them(runtime: Runtime) -> None:
    today = rows(1)
    today = {"age": today["age"] + 9, "hours": today["hours"] + 9, "height": today["height"] + 90}
    with Watch(runtime, "fraud", reference=rows(0)) as seen:
        runtime.predict("fraud", today, engine="inline")
        seen.fold()
        first, second, third = seen.causes()
        assert seen.drift()[0].column == "height"
        seen.restart()
        assert seen.causes() == []
    assert (first.column, second.column, third.column) == ("age", "hours", "height")
    assert first.explained == pytest.approx(10 / 13, abs=0.2)
    assert second.explained == pytest.approx(3 / 13, abs=0.2)
    assert third.explained is not None
    assert third.explained < 0.1


def test_columns_that_move_scores_against_each_other_are_told_apart(runtime: Runtime) -> None:
    today = rows(1)
    with Watch(runtime, "fraud", reference=rows(0)) as seen:
        moved = {**today, "age": today["age"] + 9, "hours": today["hours"] - 20}
        runtime.predict("fraud", moved, engine="inline")
        seen.fold()
        assert seen.drift()[0].column == "hours"
        assert seen.causes()[0].column == "age"


def test_an_alarm_has_its_causes(runtime: Runtime) -> None:
    with Watch(runtime, "fraud", reference=rows(0), detectors=[Adwin()]) as seen:
        for seed in range(1, 4):
            runtime.predict("fraud", rows(seed, 500), engine="inline")
        seen.fold()
        assert not seen.alarms
        today = rows(9, 500)
        runtime.predict("fraud", {**today, "hours": today["hours"] * 4}, engine="inline")
        seen.fold()
    assert seen.alarms
    assert seen.alarms[0].detector == "Adwin"
    assert seen.alarms[0].score > 1500
    assert seen.alarms[0].causes[0].column == "hours"


def test_of_private_columns_no_rows_are_kept(runtime: Runtime) -> None:
    with Watch(runtime, "secret", reference=rows(0)) as seen:
        today = rows(1)
        runtime.predict("secret", {**today, "hours": today["hours"] + 9}, engine="inline")
        seen.fold()
        first, second = seen.causes()
    assert (first.column, second.column) == ("hours", "height")
    assert first.explained is None


def test_sketches_alone_order_columns_by_their_own_drift(runtime: Runtime) -> None:
    with Watch(runtime, "fraud", reference=Reference.of(rows(0))) as seen:
        today = rows(1)
        runtime.predict("fraud", {**today, "height": today["height"] + 9}, engine="inline")
        seen.fold()
        found = seen.causes()
    assert [each.column for each in found] == [each.column for each in seen.drift()]
    assert found[0].column == "height"
    assert found[0].explained is None
    assert causes_of([]) == []


def test_samples_are_bounded_and_drawn_from_all_rows() -> None:
    sample = Sample(1000, without=["secret"])
    for start in range(0, 100_000, 4000):
        place = np.arange(start, start + 4000)
        sample.add({"place": place, "twice": 2 * place, "secret": place})
    assert sample.table.keys() == {"place", "twice"}
    places = sample.table["place"]
    assert len(places) == len(np.unique(places)) == 1000
    assert np.array_equal(sample.table["twice"], 2 * places)
    assert abs(places.mean() - 50_000) < 4_000
    sample.add({"other": np.arange(3)})
    assert [*sample.table] == ["other"]
