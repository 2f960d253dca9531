"""Rows by name take the shortest way in, and answer, or complain, as by the long one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import FlourError
from flour.core.types import Category, Record, Scalar
from flour.language.flow import source
from runtime import Runtime

ROW = {"age": 31, "city": "Graz", "income": None}
KIND = Record(
    (("age", Scalar("float64")), ("city", Category("string")), ("income", Scalar("float64")))
)


def plan() -> oven.Plan:
    """A plan over a record."""
    x = source("x", KIND)
    cities = x.field("city").one_hot(["Graz", "Łódź"]).to_dense()
    both = cities.concat(x.field("age"), x.field("income").impute(np.nan, 5.0))
    return oven.bake(flour.outputs(score=both.sum(), features=both))


def columns() -> oven.Plan:
    """A plan over an input for each column."""
    age, city = source("age", Scalar("float64")), source("city", Category("string"))
    return oven.bake(city.one_hot(["Graz", "Łódź"]).to_dense().concat(age))


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """Both plans in service."""
    with Runtime(executors=1) as made:
        made.register("record", plan())
        made.register("columns", columns())
        yield made


def short(runtime: Runtime, name: str, data: Any) -> bool:
    """Whether it goes in by the shortest way."""
    served = runtime.endpoints.find(name)
    return served.entry.function is not None and served.entry.takes(served.reader.read(data))


@pytest.mark.parametrize(
    "row", [ROW, {**ROW, "age": np.float64(3)}, [1.5, None, 2], (None, "x", 1)]
)
def test_rows_take_the_shortest_way(runtime: Runtime, row: Any) -> None:
    assert short(runtime, "record", row)
    got = runtime.predict("record", row)
    long = runtime.predict("record", row, engine="inline")
    np.testing.assert_array_equal(got["score"], long["score"])
    assert type(got["score"]) is type(long["score"])
    np.testing.assert_array_equal(got["features"], long["features"])


def test_single_columns_take_the_shortest_way(runtime: Runtime) -> None:
    row = {"city": "Łódź", "age": 2}
    assert short(runtime, "columns", row)
    assert runtime.predict("columns", row)["output"].tolist() == [0, 1, 2]
    assert (
        type(runtime.endpoints.find("columns").entry.function).__name__
        == "builtin_function_or_method"
    )


def test_blocks_are_the_same_rows(runtime: Runtime) -> None:
    rows = [{**ROW, "age": age} for age in range(7)]
    want = [runtime.predict("record", row)["score"] for row in rows]
    by_name = {name: [row[name] for row in rows] for name in ROW}
    listed = [[row[name] for name in KIND.names] for row in rows]
    for block in (rows, by_name, listed, [tuple(row) for row in listed]):
        assert runtime.predict("record", block)["score"].tolist() == want


WRONG: list[Any] = [{"age": 1, "city": "x"}, {**ROW, "city": 3}, {}]
WRONG += [{"agee": 1, "city": "x", "income": 1}, {**ROW, "age": "x"}, {**ROW, "age": [1, 2]}]
WRONG += [[1.0], [1, 2, 3], ["x", "y", "z"], [{"age": 1, "more": 1}]]


@pytest.mark.parametrize("row", WRONG, ids=range(len(WRONG)))
def test_errors_are_those_of_the_long_way(runtime: Runtime, row: Any) -> None:
    with pytest.raises(FlourError) as known:
        runtime.predict("record", row, engine="inline")
    with pytest.raises(type(known.value)) as found:
        runtime.predict("record", row)
    assert str(found.value) == str(known.value)
