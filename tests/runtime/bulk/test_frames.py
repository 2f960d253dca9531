"""Plans over pandas' and polars' frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import flour
import oven
import runtime.bulk as pretzel
from runtime.bulk import plans
from runtime.errors import BadCall
from tests.runtime.bulk import models
from tests.runtime.bulk.conftest import Known


@pytest.fixture(autouse=True)
def accessors() -> None:
    """Importing these adds the accessors of frames."""
    assert pretzel.pandas.predict is not None
    assert pretzel.polars.predict is not None


def names(known: Known) -> list[str]:
    """Return the columns of the rows."""
    return list(known.table.column_names)


@pytest.mark.parametrize("engine", ["eager", "in-memory", "streaming"])
def test_polars_answers_are_those_of_predict(known: Known, engine: str) -> None:
    frame: Any = pl.from_arrow(known.table)
    made = pretzel.polars.predict(known.plan, *names(known)).alias("answers")
    if engine == "eager":
        answers = frame.select(made)
    else:
        answers = frame.lazy().select(made).collect(engine=engine)
    known.check(answers.unnest("answers").to_arrow())


def test_several_parts(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretzel.polars, "_PART", 700)
    monkeypatch.setattr(pretzel.pandas, "_BLOCK", 700)
    frame: Any = pl.from_arrow(known.table)
    known.check(frame.pretzel.predict(known.plan, *names(known)).to_arrow())
    same_as_pandas(known, pretzel.pandas.predict(known.plan, known.frame, threads=3))


def same_as_pandas(known: Known, made: pd.DataFrame) -> None:
    """Check a frame of answers, whose vectors have a column for each value."""
    for name, wanted in known.answers.items():
        several = np.ndim(wanted) == 2
        columns = [f"{name}_{at}" for at in range(np.shape(wanted)[1])] if several else [name]
        found = made[columns if several else name].to_numpy()
        assert found.tolist() == np.asarray(wanted).tolist()


def test_pandas_answers_are_those_of_predict(known: Known) -> None:
    frame = known.frame
    frame.index = pd.Index(range(7, 7 + len(frame)), name="order")
    made = frame.pretzel.predict(known.plan)
    assert made.index.equals(frame.index)
    same_as_pandas(known, made)


@pytest.fixture(scope="module")
def one() -> Known:
    """Return the plan over columns of every type."""
    plan, table = models.mixed()
    return Known(plan, table, plan.run(table))


def test_one_output(one: Known) -> None:
    frame: Any = pl.from_arrow(one.table)
    labels = one.answers["label"].tolist()
    named = frame.with_columns(label=pretzel.polars.predict(one.plan, outputs="label"))
    assert named["label"].to_list() == labels
    assert frame.pretzel.predict(one.plan, outputs="label")["label"].to_list() == labels
    field = pretzel.polars.predict(one.plan, "age", "rooms", "city", pl.col("new"))
    assert frame.select(field.struct.field("label"))["label"].to_list() == labels
    assert one.frame.pretzel.predict(one.plan, "label").tolist() == labels
    two = one.frame.pretzel.predict(one.plan, ["scores", "label"])
    assert two.columns.tolist()[-1] == "label"
    for call in (pretzel.polars.predict, one.frame.pretzel.predict):
        with pytest.raises(BadCall, match="no output 'lable'"):
            call(one.plan, outputs="lable")


def test_more_columns_may_be_there(one: Known) -> None:
    frame: Any = pl.from_arrow(one.table)
    more = frame.with_columns(id=pl.int_range(pl.len()))
    assert more.pretzel.predict(one.plan).equals(frame.pretzel.predict(one.plan))
    table = one.frame.assign(id=1)
    assert table.pretzel.predict(one.plan).equals(one.frame.pretzel.predict(one.plan))


def test_categories_of_frames(one: Known) -> None:
    frame: Any = pl.from_arrow(one.table)
    coded = frame.with_columns(pl.col("city").cast(pl.Categorical))
    assert coded.pretzel.predict(one.plan).equals(frame.pretzel.predict(one.plan))
    table = one.frame.astype({"city": "category"})
    assert table.pretzel.predict(one.plan).equals(one.frame.pretzel.predict(one.plan))


def test_one_column_by_any_name() -> None:
    plan, table = models.texts()
    frame: Any = pl.from_arrow(table.rename_columns(["review"]))
    labels = plan.run(table)["label"].tolist()
    review: Any = pl.col("review")
    made = frame.select(review.pretzel.predict(plan, outputs="label"))
    assert made.to_series().to_list() == labels
    series = frame.to_pandas()["review"]
    assert series.pretzel.predict(plan, outputs="label").tolist() == labels


def test_no_rows(one: Known) -> None:
    none: Any = pl.from_arrow(one.table.slice(0, 0))
    made = none.pretzel.predict(one.plan)
    some: Any = pl.from_arrow(one.table)
    assert made.schema == some.pretzel.predict(one.plan).schema
    assert len(one.frame.iloc[:0].pretzel.predict(one.plan)) == 0


def test_columns_of_a_vector_have_to_be_named() -> None:
    plan, _ = models.numbers()
    with pytest.raises(BadCall, match="name the columns"):
        pretzel.polars.predict(plan)


def test_what_a_plan_may_be(one: Known, tmp_path: Any) -> None:
    one.plan.save(tmp_path / "m.pretzel")
    rows = one.frame.iloc[:5]
    wanted = rows.pretzel.predict(one.plan)
    for source in (one.plan.flow, tmp_path / "m.pretzel", str(tmp_path / "m.pretzel")):
        assert rows.pretzel.predict(source).equals(wanted)
    assert pretzel.open_plan(one.plan) is one.plan
    with pytest.raises(AttributeError, match="no attribute"):
        pretzel.nothing  # noqa: B018 (the access is what fails)


def test_work_in_parallel_keeps_its_order_and_its_errors() -> None:
    def work(number: int) -> int:
        if number == 70:
            raise KeyError(number)
        return number

    made = plans.in_parallel(work, iter(range(100)), 4)
    assert [next(made) for _ in range(70)] == list(range(70))
    with pytest.raises(KeyError):
        next(made)


def test_rows_that_depend_on_each_other_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretzel.pandas, "_BLOCK", 3)
    total = oven.bake(flour.scalar("a").plus(flour.scalar("b")).named("total"))
    monkeypatch.setattr(total, "mixes_rows", True)
    table = pa.table({"a": np.arange(9.0), "b": np.ones(9)})
    assert table.to_pandas().pretzel.predict(total)["total"].tolist() == list(range(1, 10))
