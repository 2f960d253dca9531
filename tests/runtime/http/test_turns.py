"""Large bodies take turns, and those whose answers would come too late are refused at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import numpy as np
import pytest

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.guard.turns import ClientTurns
from runtime.http.wire.messages import TIMEOUT_HEADER, Request
from scheduler import DeadlineExceeded, Overloaded
from tests.runtime.http.client import Client
from tests.runtime.plans import shift_flow

SIZE = 1000


def asked(milliseconds: float = 0, path: str = "/predict/m") -> Request:
    headers = {TIMEOUT_HEADER.encode(): b"%f" % milliseconds} if milliseconds else {}
    return Request("POST", path, "", headers, bytes(SIZE))


class Work:
    """Requests at work in turns: who began, in order, and how many there were at once."""

    def __init__(self, at_once: int) -> None:
        self.turns = ClientTurns(at_once)
        self.began: list[str] = []
        self.now = self.most = 0

    async def do(self, name: str, milliseconds: float = 0, seconds: float = 0.01) -> None:
        async with self.turns.taken(asked(milliseconds)):
            self.began.append(name)
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(seconds)
            self.now -= 1


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_more_than_so_many_at_once_the_nearest_deadline_first(at_once: int) -> None:
    work = Work(at_once)

    async def all_of_them() -> None:
        first = [work.do(f"first {number}") for number in range(at_once)]
        later = [work.do("none"), work.do("late", 9000), work.do("soon", 5000)]
        await asyncio.gather(*first, *later)

    asyncio.run(all_of_them())
    assert work.most == at_once
    assert work.began[at_once:] == ["soon", "late", "none"]


def test_what_would_be_too_late_is_refused_unless_nothing_else_is_to_be_done() -> None:
    work = Work(1)

    async def all_of_them() -> None:
        await work.do("it takes long", seconds=0.2)
        await work.do("alone it is tried", 100, 0.001)
        await work.do("and is slow again", seconds=0.4)
        busy = asyncio.create_task(work.do("busy", seconds=0.01))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="after the deadline") as refused:
            await work.do("late", 60)
        assert 0.06 < refused.value.retry_after < 0.4
        await work.do("in time", 5000)
        await busy

    asyncio.run(all_of_them())
    assert work.began[-2:] == ["busy", "in time"]


def test_a_deadline_that_has_passed_is_not_overload() -> None:
    work, request = Work(1), asked(50)
    request.started -= 1.0

    async def late() -> None:
        async with work.turns.taken(request):
            work.began.append("late")

    with pytest.raises(DeadlineExceeded):
        asyncio.run(late())
    assert work.began == []


def test_a_client_that_goes_gives_its_turn_to_the_next() -> None:
    work = Work(1)

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(work.do(f"{number}")) for number in range(4)]
        await asyncio.sleep(0.002)
        tasks[0].cancel()
        tasks[2].cancel()
        await asyncio.wait(tasks)
        await work.do("the last")

    asyncio.run(all_of_them())
    assert work.began == ["0", "1", "3", "the last"]


async def store(value: float) -> float:
    return value


@pytest.fixture
def server() -> Iterator[Server]:
    with Runtime() as runtime:
        runtime.register("shift", shift_flow(1.0), background=False)
        value = flour.fetch(store, flour.record(value=float)["value"], gives=float)
        runtime.register("waits", flour.outputs(value=value))
        with Server(runtime, ServerSettings(port=0)) as served:
            yield served


def test_over_http_a_refusal_says_when_to_come_again(server: Server) -> None:
    server.service._turns = ClientTurns(1)
    server.service._turns._rates["/predict/shift"] = 1.0  # seconds for a byte
    server.service._turns._free = 0  # another is at work
    body = json.dumps(np.zeros((60_000, 4)).tolist()).encode()
    client = Client(server.port)
    refused = client.post("/predict/shift", body, headers={TIMEOUT_HEADER: "5000"})
    assert refused.status == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert "after the deadline" in refused.error
    rows = json.dumps([{"value": 1.0}] * 40_000).encode()
    waits = client.post("/predict/waits", rows)  # it may wait for long, and computes little
    assert (waits.status, len(waits.json)) == (200, 40_000)
    server.service._turns._pass_on()
    assert client.post("/predict/shift", body).status == 200
