"""Routed endpoints: which version answers, promotion and rollback under traffic, the history."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import flour
import oven
from runtime import Runtime
from runtime.errors import BadCall, BadRegistration, InService, UnknownEndpoint
from tests.runtime.plans import WIDTH, offset_of, record_flow, shift

ROW = np.arange(WIDTH, dtype=float)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """Three versions, each of which adds its own number."""
    with Runtime() as made:
        for number in (1, 2, 3):
            made.register("m", shift(float(number)), version=number)
        made.switch("m", 1)
        yield made


def answered(outputs: dict[str, Any]) -> str:
    """The version that has answered ROW."""
    return f"m@{offset_of(outputs, ROW):.0f}"


def test_every_way_to_ask_follows_the_route(runtime: Runtime) -> None:
    assert runtime.routes.choose("m", ROW).owner == "m@1"
    route = runtime.route("m", "m@1", split={"m@2": 50}, header="x-user", tenants={"acme": "m@3"})
    seen = set()
    for user in range(64):
        headers = {"x-user": str(user)}
        expected = route.choose(ROW, headers)
        assert runtime.routes.choose("m", ROW, headers).owner == expected
        assert answered(runtime.predict("m", ROW, headers=headers)) == expected
        assert answered(runtime.submit("m", ROW, headers=headers).result()) == expected
        assert answered(asyncio.run(runtime.apredict("m", ROW, headers=headers))) == expected
        seen.add(expected)
    assert seen == {"m@1", "m@2"}
    for block in runtime.predict_batch("m", [ROW[None]] * 3, tenant="acme"):
        assert np.array_equal(block["moved"], ROW[None] + 3)
    assert answered(runtime.predict("m", ROW, outputs="moved", tenant="acme")) == "m@3"
    assert answered(runtime.predict("m@2", ROW, tenant="acme")) == "m@2"


def test_rows_in_every_form_follow_rules_and_keys() -> None:
    """Names of columns come from the model where a row has none."""
    row = {"country": "UK", "amount": 5.0, "user": 1.0}
    kind = [("country", "U2"), ("amount", float), ("user", float)]
    plain = [*row.values()]
    forms: list[Any] = [row, plain, tuple(plain), [plain], np.array(plain, object), [row]]
    forms += [np.array([tuple(plain)], kind), pd.DataFrame([row]), pd.DataFrame([row]).iloc[0]]
    forms += [pa.table({name: [value] for name, value in row.items()}), pl.DataFrame([row])]
    forms += [pa.RecordBatch.from_pylist([row])]
    x = flour.record(
        "row", {"country": flour.Text(), "amount": flour.Scalar(), "user": flour.Scalar()}
    )
    with Runtime() as made:
        for number in (1, 2, 3):
            plan = oven.bake(flour.outputs(score=x["amount"] * float(number)), background=False)
            made.register("q", plan, version=number)
        made.route("q", "q@1", rules={"amount > 1 and country == 'UK'": "q@2"})
        assert [made.routes.choose("q", each).owner for each in forms] == ["q@2"] * len(forms)
        found = [float(np.ravel(made.predict("q", each)["score"])[0]) for each in forms]
        assert found == [10.0] * len(forms)
        made.route("q", "q@1", split={"q@3": 100}, by="user")
        assert [made.routes.choose("q", each).owner for each in forms] == ["q@3"] * len(forms)
        with pytest.raises(BadCall, match="one text or number"):
            made.routes.choose("q", [plain, plain])


def test_a_rule_reads_a_document() -> None:
    t = flour.text("t")
    with Runtime() as made:
        for number in (1, 2):
            made.register("t", oven.bake(flour.outputs(n=t.lower(), m=t)), version=number)
        made.route("t", "t@1", rules={"t == 'a'": "t@2"})
        rows: list[Any] = ["a", ["a"], {"t": "a"}, np.array(["a"])]
        assert [made.routes.choose("t", each).owner for each in rows] == ["t@2"] * len(rows)
        assert made.routes.choose("t", "b").owner == "t@1"


@pytest.mark.parametrize(
    "parts",
    [
        {"by": ["user"], "split": {"m@2": 5}},
        {"by": "u", "split": {"m@2": "5"}},
        {"tenants": {None: "m@2"}},
        {"tenants": {"": "m@2"}},
    ],
)
def test_parts_of_other_types_are_refused(runtime: Runtime, parts: dict[str, Any]) -> None:
    with pytest.raises(BadRegistration):
        runtime.route("m", "m@1", **parts)


@pytest.mark.parametrize("tolerance", [-1, float("nan"), "x", True])
def test_a_tolerance_is_a_number(runtime: Runtime, tolerance: Any) -> None:
    with pytest.raises(BadCall, match="a tolerance is a number"):
        runtime.experiments.compare("m", tolerance=tolerance)


def test_what_observes_adds_pairs(runtime: Runtime) -> None:
    with pytest.raises(BadCall, match="method `add`"):
        runtime.experiments.observe("m", [])  # type: ignore[arg-type]  # what is refused


def test_a_name_that_is_muted_answers_nothing(runtime: Runtime) -> None:
    runtime.routes.mute("m", "as a broken file")
    for call in (runtime.predict, runtime.submit):
        with pytest.raises(UnknownEndpoint, match="as a broken file"):
            call("m", ROW)
    assert answered(runtime.predict("m@2", ROW)) == "m@2"
    runtime.switch("m", 2)
    with pytest.raises(UnknownEndpoint):
        runtime.endpoints.find("m")
    runtime.routes.unmute("m")
    assert answered(runtime.predict("m", ROW)) == "m@2"
    runtime.routes.mute("n", "before there is one")
    runtime.register("n", shift(1.0))
    with pytest.raises(UnknownEndpoint):
        runtime.predict("n", ROW)
    runtime.route("n", "n@1")
    assert offset_of(runtime.predict("n", ROW), ROW) == 1


def test_a_champion_alone_stands_in_the_table(runtime: Runtime) -> None:
    runtime.route("m", "m@2")
    assert runtime.routes.routed("m") is None
    assert answered(runtime.predict("m", ROW)) == "m@2"
    assert next(iter(runtime.endpoints)).current == "2"
    runtime.route("m", "m@1", split={"m@2": 100}, header="x")
    assert runtime.routes.routed("m") is not None
    assert answered(runtime.predict("m", ROW)) == "m@1"
    assert next(iter(runtime.endpoints)).current == "1"
    assert runtime.endpoints.find("m").owner == "m@1"
    runtime.promote("m")
    assert runtime.routes.routed("m") is None
    assert answered(runtime.predict("m", ROW)) == "m@2"


@pytest.mark.parametrize("parts", [{}, {"split": {"m@2": 50}, "header": "x"}])
def test_a_new_version_waits_for_the_route(runtime: Runtime, parts: dict[str, Any]) -> None:
    runtime.route("m", "m@1", split={"m@2": 50}, header="x")
    runtime.route("m", "m@1", **parts)
    runtime.register("m", shift(4.0), version=4)
    assert runtime.endpoints.find("m").owner == "m@1" == answered(runtime.predict("m", ROW))
    runtime.route("m", "m@1", split={"m@2": 50}, header="x")
    runtime.register("m", shift(10.0), version=1, replace=True)
    assert answered(runtime.predict("m", ROW)) == "m@10"
    assert runtime.routes.routed("m") is not None
    with pytest.raises(BadCall, match="has a route"):
        runtime.switch("m", 2)
    for version in (1, 2):
        with pytest.raises(InService):
            runtime.unregister("m", version)
    runtime.unregister("m", 3)
    runtime.unregister("m")
    with pytest.raises(UnknownEndpoint):
        runtime.predict("m", ROW)
    runtime.register("m", shift(5.0))
    assert answered(runtime.predict("m", ROW)) == "m@5"
    with pytest.raises(UnknownEndpoint, match="has no route"):
        runtime.routes.history("m")


def test_a_vector_is_no_key(runtime: Runtime) -> None:
    runtime.route("m", "m@1", split={"m@2": 100}, by="x")
    with pytest.raises(BadCall, match="one text or number"):
        runtime.predict("m", {"x": ROW})


def test_promotion_and_rollback_keep_a_history(runtime: Runtime) -> None:
    began = time.time()
    first = runtime.route("m", "m@1", split={"m@2": 5}, header="x", who="ann")
    second = runtime.promote("m", who="bob")
    assert (second.champion, dict(second.split)) == ("m@2", {})
    third = runtime.promote("m", "m@3")
    assert third.champion == "m@3"
    assert runtime.rollback("m") == second
    assert runtime.rollback("m", who="eve") == first
    with pytest.raises(BadCall, match="no earlier route"):
        runtime.rollback("m")
    told = [(each.action, each.who) for each in runtime.routes.history("m")]
    assert told == [
        ("route", "ann"),
        ("promote", "bob"),
        ("promote", ""),
        ("rollback", ""),
        ("rollback", "eve"),
    ]
    times = [began, *(each.when for each in runtime.routes.history("m")), time.time()]
    assert times == sorted(times)


def test_versions_are_named_by_their_number_too(runtime: Runtime) -> None:
    parts: dict[str, Any] = {
        "rules": {"headers['x'] == 'no'": "2"},
        "tenants": {"acme": "m@3"},
        "shadow": "3",
    }
    made = runtime.route("m", "1", split={"2": 5, "m@3": 5}, header="x", **parts)
    assert made.addresses == ("m@1", "m@2", "m@3")
    assert runtime.routes.history("m")[-1].route == made
    for version in ("2", 3, "m@1"):
        made = runtime.promote("m", version)
        assert (
            answered(runtime.predict("m", ROW))
            == made.champion
            == runtime.endpoints.find("m").owner
        )
    for missing in ("9", 9, "m@9"):
        with pytest.raises(UnknownEndpoint, match="'m' has no version '9'"):
            runtime.promote("m", missing)


def test_what_cannot_be_routed_changes_nothing(runtime: Runtime) -> None:
    before = runtime.route("m", "m@1")
    runtime.register("n", shift(1.0))
    for address, message in (("m@9", "no version"), ("m", "names its versions"), ("n@1", "names")):
        with pytest.raises((UnknownEndpoint, BadRegistration), match=message):
            runtime.route("m", address)
    with pytest.raises(BadCall, match="0 challengers"):
        runtime.promote("m")
    with pytest.raises(UnknownEndpoint, match="has no route"):
        runtime.rollback("n")
    with pytest.raises(BadRegistration, match="no column 'y'") as refused:
        runtime.route("m", "m@1", rules={"y == 1": "m@2"})
    assert "x" in str(refused.value)
    assert [each.route for each in runtime.routes.history("m")] == [before]
    assert runtime.routes.routed("m") is None


def test_a_change_that_cannot_be_written_down_does_not_count(runtime: Runtime) -> None:
    before = runtime.route("m", "m@1")

    def full(_name: str, _history: object) -> None:
        raise OSError("no space left")

    runtime.routes.on_route = full
    with pytest.raises(OSError, match="no space"):
        runtime.route("m", "m@2")
    assert [each.route for each in runtime.routes.history("m")] == [before]
    assert answered(runtime.predict("m", ROW)) == "m@1"


def test_traffic_sees_the_one_version_or_the_other(runtime: Runtime) -> None:
    over, wrong, seen = Event(), list[object](), set[str]()
    runtime.route("m", "m@1", split={"m@2": 100}, header="x", rules={"headers['y'] == '1'": "m@3"})

    def ask(headers: dict[str, str]) -> None:
        while not over.is_set():
            try:
                seen.add(answered(runtime.predict("m", ROW, headers=headers)))
            except Exception as problem:  # noqa: BLE001 (told by the test)
                wrong.append(problem)

    asked: tuple[dict[str, str], ...] = ({}, {"x": "1"}, {"x": "2"})
    threads = [Thread(target=ask, args=(headers,)) for headers in asked]
    for each in threads:
        each.start()
    try:
        for _ in range(300):
            runtime.promote("m", "m@2")
            runtime.rollback("m")
    finally:
        over.set()
        for each in threads:
            each.join()
    assert not wrong
    assert seen == {"m@1", "m@2"}


def test_an_input_of_the_model_is_a_key() -> None:
    flow = flour.outputs(moved=flour.scalar("user").add(1.0))
    with Runtime() as runtime:
        for number in (1, 2):
            runtime.register("m", flow, version=number)
        route = runtime.route("m", "m@1", split={"m@2": 50}, by="user")
        rows = [{"user": float(user)} for user in range(32)]
        chosen = [runtime.routes.choose("m", row).owner for row in rows]
        assert chosen == [route.choose(row) for row in rows]
        assert set(chosen) == {"m@1", "m@2"}
        assert [runtime.predict("m", row)["moved"] for row in rows] == [n + 1.0 for n in range(32)]


def test_rules_read_the_columns_of_a_row() -> None:
    with Runtime() as runtime:
        for number in (1, 2, 3):
            runtime.register("m", record_flow(), version=number)
        runtime.route(
            "m",
            rules={"city == 'Oslo' and age > 40": "m@2"},
            split={"m@3": 100},
            by="income",
            where="income >= 10",
            otherwise="m@1",
        )
        row = {"age": 41.0, "income": 1.0, "city": "Oslo"}
        assert runtime.routes.choose("m", row).owner == "m@2"
        assert runtime.routes.choose("m", {**row, "age": 40.0}).owner == "m@1"
        assert runtime.routes.choose("m", {**row, "age": 40.0, "income": 10.0}).owner == "m@3"
        block = {name: [value] for name, value in row.items()}
        assert runtime.routes.choose("m", block).owner == "m@2"
        assert runtime.routes.choose("m", [row]).owner == "m@2"
        both = {name: [value] * 2 for name, value in row.items()} | {"age": [41.0, 40.0]}
        assert runtime.routes.by_version("m", both) == {"m@2": [0], "m@1": [1]}
        assert len(next(iter(runtime.predict("m", both).values()))) == 2
        with pytest.raises(BadRegistration, match="no column 'cite'") as refused:
            runtime.route("m", "m@1", rules={"cite == 'Oslo'": "m@2"})
        assert "city" in str(refused.value)
        with pytest.raises(BadRegistration, match="compared with numbers"):
            runtime.route("m", "m@1", rules={"city > 4": "m@2"})
