"""Requests of Python and of HTTP pass through the same answerers: neither does more beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import flour
from flour.core.errors import InputError
from runtime import Runtime
from runtime.http import Server, ServerSettings
from tests.house import until
from tests.runtime.http.client import Client
from tests.runtime.routing.seen import Seen

ROW, CHALLENGED = {"user": 1.0, "amount": 2.0}, {"user": 1.0, "amount": 200.0}
RULE = {"amount > 100": "m@2"}
Ask = Callable[[object], object]


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as made:
        row = flour.record(user=float, amount=float)
        for number in (1, 2, 3):
            program = flour.outputs(score=row["amount"] * float(number))
            made.register("m", program, number, activate=number == 1, background=False)
        yield made


class Refusing:
    """Answers nothing: each call is refused when it comes."""

    def quick(self, *_: object) -> None:
        return None

    def answer(self, _: object) -> Future[Any]:
        raise InputError("the rows are not taken")


@pytest.fixture(params=["python", "HTTP"])
def ask(request: pytest.FixtureRequest, runtime: Runtime) -> Iterator[Ask]:
    """Asks for the scores of rows, by each way."""
    if request.param == "python":
        yield lambda data: runtime.predict("m", data)
        return
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        client = Client(server.port)
        yield lambda data: client.post("/predict/m", data).json


def test_a_condition_reads_the_columns_of_a_row_without_names(runtime: Runtime, ask: Ask) -> None:
    runtime.route("m", "m@1", rules=RULE)
    assert ask([1.0, 200.0]) == {"score": 400.0} == ask(CHALLENGED)
    assert ask([1.0, 2.0]) == {"score": 2.0} == ask(ROW)


def test_a_shadow_is_asked_for_rows_of_the_champion_alone(runtime: Runtime, ask: Ask) -> None:
    seen = Seen()
    runtime.experiments.observe("m", seen)
    runtime.route("m", "m@1", rules=RULE, shadow="m@3", inline=False)
    ask([ROW, CHALLENGED])
    ask(ROW)  # the shadow is asked in order, so nothing of the block is left then
    until(lambda: len(seen.pairs) >= 2)
    block, row = (each.expected["score"] for each in seen.pairs[:2])  # type: ignore[index]  # answers
    assert ([*block], row) == ([2.0], 2.0)


def test_what_is_refused_at_once_is_shown_to_shadows(runtime: Runtime) -> None:
    seen = Seen()
    runtime.experiments.observe("m", seen)
    runtime.route("m", "m@1", shadow="m@3", inline=False)
    refused(runtime)
    until(lambda: len(seen.pairs) == 1)
    assert isinstance(seen.pairs[0].expected, InputError)


def test_what_is_refused_at_once_is_counted(runtime: Runtime) -> None:
    runtime.rollout("m", "m@2", by="user", watch=False, steps=(0.001, 100))
    refused(runtime)
    ((_, _, counts),) = runtime.experiments.reports("m")
    assert counts["m@1"]["errors"][0] == 1


def refused(runtime: Runtime) -> None:
    """A request whose call is refused when it comes."""
    with Server(runtime, ServerSettings(port=0, max_unread=0.0), answering=Refusing()) as server:
        assert Client(server.port).post("/predict/m", ROW).status == 400
