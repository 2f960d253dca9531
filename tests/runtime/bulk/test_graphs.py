"""Graphs by the doors for blocks of rows: where they do not wait, they answer as plans do."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import flour
import oven
import runtime.bulk as pretzel
from runtime import Runtime
from runtime.errors import BadCall
from runtime.graph.plan import GraphPlan
from tests.runtime.graph.models import people, row, table_model, text_model

FRAME = people(64, seed=7)


def graph(*, named: bool, lazy: bool) -> flour.Flow:
    """Two models whose inputs have one name; a lazy graph has several steps."""
    person = row()
    table, text = (
        (flour.model("risk"), flour.model("spam"))
        if named
        else (flour.plan(table_model(0)), flour.plan(text_model(0)))
    )
    risk, doubt = table(person["age", "income", "city"]), text(person["note"])
    score, spam = risk["probabilities"][1], doubt["probabilities"][1]
    if lazy:
        return flour.outputs(score=flour.where(person["income"] > 20.0, score, spam))
    return flour.outputs(score=score + spam, label=risk["label"])


def expected(*, lazy: bool) -> Any:
    with Runtime(executors=1) as runtime:
        runtime.register("risk", table_model(0), background=False)
        runtime.register("spam", text_model(0), background=False)
        runtime.register("graph", graph(named=True, lazy=lazy), background=False)
        return runtime.predict("graph", FRAME)["score"]


@pytest.mark.parametrize(("named", "lazy"), [(False, True), (True, False)])
def test_every_door(tmp_path: Path, named: bool, lazy: bool) -> None:  # noqa: FBT001 (a case)
    wanted = expected(lazy=lazy)
    source: flour.Flow | Path = graph(named=named, lazy=lazy)
    if named:
        oven.bake(table_model(0)).save(tmp_path / "risk.pretzel")
        oven.bake(text_model(0)).save(tmp_path / "spam.pretzel")
        flour.save_graph(graph(named=True, lazy=lazy), source := tmp_path / "decide.graph")
    plan = pretzel.open_plan(source)
    gc.collect()
    assert isinstance(plan, GraphPlan) is lazy
    found: dict[str, Any] = {"pandas": pretzel.pandas.predict(plan, FRAME)["score"]}
    rows = pl.from_pandas(FRAME).lazy()
    made = rows.select(pretzel.polars.predict(plan, *FRAME.columns).alias("made"))
    found["polars"] = made.collect().unnest("made")["score"]
    table = pa.Table.from_pandas(FRAME)
    found["arrow"] = pa.table(plan.run_arrow(table))["score"]
    with pretzel.duckdb.connect() as connection:
        connection.register("rows", table)
        pretzel.duckdb.register(connection, "decide", plan)
        query = "select decide(age, income, city, note).score from rows"
        found["duckdb"] = [value for (value,) in connection.execute(query).fetchall()]
    for answers in found.values():
        np.testing.assert_allclose(answers, wanted, rtol=1e-12)


def test_what_has_no_plan_says_what_to_use(tmp_path: Path) -> None:
    async def load(age: float) -> float:
        return age

    with pytest.raises(flour.FlourError, match=r"open_plan\(graph\)"):
        oven.bake(graph(named=False, lazy=False))
    with pytest.raises(flour.FlourError, match="nothing is registered as 'risk'"):
        pretzel.open_plan(graph(named=True, lazy=False))
    with pytest.raises(BadCall, match="predict_batch"):
        pretzel.open_plan(flour.outputs(x=flour.fetch(load, row()["age"], gives=float)))
    flour.save_graph(graph(named=True, lazy=False), tmp_path / "decide.graph")
    with pytest.raises(BadCall, match="nothing is registered as 'risk'"):
        pretzel.open_plan(tmp_path / "decide.graph")
    with Runtime(executors=1) as runtime:
        runtime.register("risk", table_model(0))
        runtime.register("spam", text_model(0))
        runtime.register("decide", graph(named=True, lazy=True))
        plan = runtime.endpoints.find("decide").plan
        assert plan is not None
        assert len(pretzel.pandas.predict(plan, FRAME)) == len(FRAME)


@pytest.mark.parametrize("place", ["decide/2/graph.toml", "decide/graph.toml", "decide@7.graph"])
def test_a_file_of_a_graph_is_the_version_that_it_is(tmp_path: Path, place: str) -> None:
    oven.bake(table_model(0)).save(tmp_path / "risk.pretzel")
    text = """
    [inputs]
    age = "number"
    income = "number"
    city = "category"
    [nodes.risk]
    model = "risk"
    reads = ["age", "income", "city"]
    [outputs]
    score = "risk.probabilities[1]"
    """
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".toml":
        path.write_text(text)
    else:
        (tmp_path / "text.toml").write_text(text)
        flour.save_graph(flour.load_graph(tmp_path / "text.toml"), path)
        (tmp_path / "text.toml").unlink()
    found = pretzel.pandas.predict(pretzel.open_plan(path), FRAME)["score"]
    assert np.array_equal(found, oven.bake(table_model(0)).run(FRAME)["probabilities"][:, 1])
