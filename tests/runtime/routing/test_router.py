"""Routers: which version answers, promotion and rollback under traffic, and the history."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread

import numpy as np
import pytest

import flour
from runtime import Runtime
from runtime.errors import BadCall, BadRegistration, UnknownEndpoint
from runtime.routing import Router
from tests.runtime.plans import WIDTH, offset_of, shift

ROW = np.arange(WIDTH, dtype=float)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """Three versions, each of which adds its own number."""
    with Runtime() as made:
        for number in (1, 2, 3):
            made.register("m", shift(float(number)), version=number)
        made.switch("m", 1)
        yield made


def test_the_version_that_answered_is_told(runtime: Runtime) -> None:
    router = Router(runtime)
    assert router.predict("m", ROW).version == "m@1"
    router.route("m", "m@1", split={"m@2": 50}, header="x-user", tenants={"acme": "m@3"})
    seen = set()
    for user in range(64):
        version, outputs = router.predict("m", ROW, headers={"x-user": str(user)})
        assert version == f"m@{offset_of(outputs, ROW):.0f}"
        seen.add(version)
    assert seen == {"m@1", "m@2"}
    assert router.predict("m", ROW, tenant="acme").version == "m@3"


def test_a_vector_is_no_key(runtime: Runtime) -> None:
    router = Router(runtime)
    router.route("m", "m@1", split={"m@2": 100}, by="x")
    with pytest.raises(BadCall, match="one text or number"):
        router.predict("m", {"x": ROW})


def test_promotion_and_rollback_keep_a_history(runtime: Runtime) -> None:
    router = Router(runtime, clock=iter(range(10)).__next__)
    first = router.route("m", "m@1", split={"m@2": 5}, header="x", who="ann")
    second = router.promote("m", who="bob")
    assert (second.champion, dict(second.split)) == ("m@2", {})
    third = router.promote("m", "m@3")
    assert third.champion == "m@3"
    assert router.rollback("m") == second
    assert router.rollback("m", who="eve") == first
    with pytest.raises(BadCall, match="no earlier route"):
        router.rollback("m")
    told = [(each.action, each.who, each.when) for each in router.history("m")]
    assert told == [
        ("route", "ann", 0),
        ("promote", "bob", 1),
        ("promote", "", 2),
        ("rollback", "", 3),
        ("rollback", "eve", 4),
    ]


def test_what_cannot_be_routed_changes_nothing(runtime: Runtime) -> None:
    router = Router(runtime)
    before = router.route("m", "m@1")
    with pytest.raises(UnknownEndpoint):
        router.route("m", "m@9")
    with pytest.raises(BadRegistration, match="names versions"):
        router.route("m", "m")
    with pytest.raises(BadCall, match="0 challengers"):
        router.promote("m")
    with pytest.raises(UnknownEndpoint, match="has no route"):
        router.rollback("n")
    assert [each.route for each in router.history("m")] == [before]


def test_traffic_sees_the_one_version_or_the_other(runtime: Runtime) -> None:
    router, over, wrong = Router(runtime), Event(), list[object]()
    router.route("m", "m@1", split={"m@2": 5}, header="x")

    def ask() -> None:
        while not over.is_set():
            try:
                version, outputs = router.predict("m", ROW)
                if version != f"m@{offset_of(outputs, ROW):.0f}":
                    wrong.append(version)
            except Exception as problem:  # noqa: BLE001 (told by the test)
                wrong.append(problem)

    threads = [Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    try:
        for _ in range(300):
            router.promote("m", "m@2")
            router.rollback("m")
    finally:
        over.set()
        for each in threads:
            each.join()
    assert not wrong


def test_an_input_of_the_model_is_a_key() -> None:
    flow = flour.outputs(moved=flour.scalar("user").add(1.0))
    with Runtime() as runtime:
        for number in (1, 2):
            runtime.register("m", flow, version=number)
        router = Router(runtime)
        route = router.route("m", "m@1", split={"m@2": 50}, by="user")
        rows = [{"user": float(user)} for user in range(32)]
        answered = [router.predict("m", row).version for row in rows]
        assert answered == [route.choose(row) for row in rows]
        assert set(answered) == {"m@1", "m@2"}
