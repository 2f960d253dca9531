"""A loop that is behind: requests count from their arrival, turns are fair."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench import overload
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.routes import HandlerContext, HttpRoute
from runtime.http.wire.lag import EVERY, Lag
from runtime.http.wire.loop_fairness import gently, uncollected
from runtime.http.wire.messages import Answer, Request, Response
from runtime.service.answerers import InferCall
from runtime.service.direct import Direct
from tests.runtime.http.certificates import Authority
from tests.runtime.http.client import Client, Reply, replies
from tests.runtime.http.conftest import filled, tensor
from tests.runtime.plans import WIDTH, shift

BUSY = 0.5
#: Seconds of it that are known to have passed at least: the loop is looked at from time to time.
KNOWN = BUSY - 1.5 * EVERY
#: Bytes that a connection takes though nobody reads them; a head is within them.
FIRST = 4096
BODY = json.dumps({"inputs": [tensor("x", "FP64", [2, WIDTH], [0.5] * 2 * WIDTH)]}).encode()


BEGUN, SENT = threading.Event(), threading.Event()
#: When the loop was no longer busy, for the round that follows.
ENDED: list[float] = []


def _busy(_service: HandlerContext, _request: Request) -> Answer:
    """Hold up the loop until a request has been sent, and for `BUSY` seconds of its wait."""
    BEGUN.set()
    assert SENT.wait(60)
    time.sleep(BUSY)
    ENDED[:] = [time.perf_counter()]
    return Response()


@pytest.fixture(autouse=True)
def _rounds_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine the process may stand still behind the busy round, as if it was idle."""
    usual = Lag.since

    def since(lag: Lag, now: float, loop: asyncio.AbstractEventLoop) -> float:
        return usual(lag, ENDED.pop() if ENDED else now, loop)

    ENDED.clear()
    monkeypatch.setattr(Lag, "since", since)


@contextmanager
def serving(**settings: Any) -> Iterator[Client]:
    """A server whose loop does nothing else while it answers /busy."""
    route = HttpRoute("GET", "/busy", _busy, "Hold up the event loop")
    with (
        Runtime(executors=1) as runtime,
        Server(runtime, ServerSettings(port=0, **settings), routes=[route]) as server,
    ):
        filled(runtime)
        yield Client(server.port)


def asked_while_busy(client: Client, body: bytes = BODY, header: str = "") -> Reply:
    """The reply to a request that comes when the loop has just begun to be busy."""
    (reply,) = all_while_busy(client, body, header)
    return reply


def all_while_busy(
    client: Client, body: bytes = BODY, header: str = "", after: bytes = b"", count: int = 1
) -> list[Reply]:
    """The replies to such a request and to what follows it on the connection."""
    head = f"POST /v2/models/iris/infer HTTP/1.1\r\nhost: here\r\n{header}"
    message = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    with client.raw() as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: here\r\n\r\n")
        assert replies(connection)[0].status == 200
        holding = threading.Thread(target=client.get, args=("/busy",))
        BEGUN.clear()
        SENT.clear()
        holding.start()
        assert BEGUN.wait(60)
        connection.sendall(message[:FIRST])
        SENT.set()
        connection.sendall(message[FIRST:] + after)
        told = replies(connection, count)
        holding.join()
    return told


def figure(client: Client, name: str) -> float:
    lines = client.get("/metrics").body.decode().splitlines()
    return max(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_what_waited_too_long_is_refused_unread() -> None:
    with serving(max_unread=0.3) as client:
        reply = asked_while_busy(client, b"no JSON, and not looked at")
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "overloaded" in reply.error
        assert asked_while_busy(client).status == 503
        assert client.post("/v2/models/iris/infer", BODY).status == 200  # it keeps up again


@pytest.mark.parametrize("size", [10_000, 20_000, 300_000])
def test_the_body_of_what_is_refused_is_dropped_and_the_connection_goes_on(size: int) -> None:
    after = "POST /v2/models/iris/infer HTTP/1.1\r\nhost: here\r\nx-request-timeout-ms: 60000\r\n"
    after += f"content-length: {len(BODY)}\r\n\r\n{BODY.decode()}"
    with serving(max_unread=0.3) as client:
        told = all_while_busy(client, b"\n" * size, after=after.encode() * 2, count=3)
    assert [each.status for each in told] == [503, 200, 200]


def test_the_body_of_what_is_refused_inside_TLS_is_dropped_as_well(  # noqa: N802 (its name)
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Bytes in the socket are records, which may begin with the next request."""
    authority = Authority(tmp_path)
    certificate, key = authority.server()
    head = b"POST /v2/models/iris/infer HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n"
    with serving(max_unread=0.1, tls_cert=certificate, tls_key=key) as client:
        client.context = authority.trusted()
        with client.raw() as connection, monkeypatch.context() as busy:
            busy.setattr(Lag, "since", lambda _lag, now, _loop: now - 0.2)
            busy.setattr(Lag, "look", lambda lag, _late: setattr(lag, "behind", True))
            time.sleep(3 * EVERY)
            connection.sendall(head % 300_000 + b" " * 300_000)
            assert replies(connection)[0].status == 503
            busy.undo()
            connection.sendall((head % len(BODY) + BODY) * 2)
            assert [each.status for each in replies(connection, 2)] == [200, 200]


@pytest.mark.parametrize(("size", "status"), [(900_000, 503), (3_000_000, 200)])
def test_the_time_in_which_a_long_body_is_sent_is_no_wait(
    monkeypatch: pytest.MonkeyPatch, size: int, status: int
) -> None:
    monkeypatch.setattr(Lag, "since", lambda _lag, now, _loop: now - 0.2)
    head = f"POST /v2/models/iris/infer HTTP/1.1\r\nhost: here\r\ncontent-length: {size}\r\n\r\n"
    padded = b'{"id": "%b", ' % (b"x" * (size - len(BODY) - 10)) + BODY[1:]
    message = head.encode() + padded.ljust(size)
    with serving(max_unread=0.5) as client, client.raw() as connection:
        monkeypatch.setattr(Lag, "look", lambda lag, _late: setattr(lag, "behind", True))
        time.sleep(2 * EVERY)
        for at in range(0, len(message), len(message) // 4):
            connection.sendall(message[at : at + len(message) // 4])
            time.sleep(0.15)
        assert replies(connection)[0].status == status


@pytest.mark.parametrize("name", ["x-request-timeout-ms", "X-Request-Timeout-MS"])
def test_half_of_a_deadline_is_for_the_answer(name: str) -> None:
    with serving(max_unread=0.01) as client:
        assert asked_while_busy(client, header=f"{name}: 600\r\n").status == 503
        assert asked_while_busy(client, header=f"{name}: 60000\r\n").status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v2/models/iris/infer", BODY), ("/predict/iris", json.dumps([[0.5] * WIDTH] * 2).encode())],
)
def test_few_rows_with_a_deadline_are_answered_at_once_as_those_without(
    monkeypatch: pytest.MonkeyPatch, path: str, body: bytes
) -> None:
    queued: list[object] = []
    usual = Direct.answer

    def answer(self: Direct, call: InferCall) -> Future[dict[str, Any]]:
        queued.append(call)
        return usual(self, call)

    monkeypatch.setattr(Direct, "answer", answer)
    with serving(max_unread=0.0) as client:
        plain = client.post(path, body)
        queued.clear()
        reply = client.post(path, body, {"x-request-timeout-ms": "60000"})
        assert (reply.status, reply.body) == (200, plain.body)
        assert not queued
        late = client.post(path, body, {"x-request-timeout-ms": "0"})
        assert late.status == 504
        assert figure(client, "pretzel_call_failures_total") >= 1


@pytest.mark.parametrize("way", ["header", "parameter"])
def test_a_deadline_counts_from_the_arrival(way: str) -> None:
    header = "x-request-timeout-ms: 300\r\n" if way == "header" else ""
    known = {"parameters": {"timeout": 300_000}} if way == "parameter" else {}
    with serving(max_unread=0.0) as client:
        reply = asked_while_busy(client, json.dumps(json.loads(BODY) | known).encode(), header)
        assert reply.status == 504
        assert "deadline" in reply.error


def test_the_wait_is_in_the_metrics() -> None:
    with serving(max_unread=0.0) as client:
        assert asked_while_busy(client).status == 200
        assert figure(client, "pretzel_http_unread_seconds ") > KNOWN
        assert figure(client, "pretzel_http_loop_lag_seconds ") > KNOWN
        infer = 'pretzel_http_request_duration_seconds_sum{route="/v2/models/{model}/infer"'
        assert figure(client, infer) > KNOWN


def test_a_loop_that_waited_for_clients_was_not_behind() -> None:
    async def rounds() -> tuple[float, float]:
        lag, loop = Lag(), asyncio.get_running_loop()
        first = time.perf_counter()
        lag.since(first, loop)
        time.sleep(0.02)  # noqa: ASYNC251 (the loop is to be busy)
        await asyncio.sleep(0)  # the round ends, and the next one begins at once
        busy = time.perf_counter() - lag.since(time.perf_counter(), loop)
        await asyncio.sleep(0.05)
        now = time.perf_counter()
        return busy, now - lag.since(now, loop)

    busy, idle = asyncio.run(rounds())
    assert busy >= 0.02
    assert idle == 0.0


def test_what_comes_after_a_stop_has_not_waited() -> None:
    async def since() -> tuple[float, float]:
        lag = Lag()
        lag.look(2.0)  # the process was stopped, and goes on
        await asyncio.sleep(0.002)
        now = time.perf_counter()
        return now, lag.since(now, asyncio.get_running_loop())

    now, found = asyncio.run(since())
    assert found == now


@pytest.mark.apart  # real seconds of a server and a client in processes of their own
def test_clients_outside_are_answered_in_time_or_told_soon(tmp_path: Path) -> None:
    """The load comes from a process of its own: here it would wait for the server's GIL."""
    body = tmp_path / "body"
    body.write_bytes(overload.block())
    with overload.serving() as server:
        port = server.port
        most = overload.offered(port, body, 0.0, 1.0)
        assert most.good  # and some 503 on a machine that is busy with something else
        rate = len(most.good) / most.seconds
        outcome = overload.offered(port, body, 3 * rate, 2.0)
        figures = Client(port).get("/metrics").body.decode()
    assert outcome.good
    assert set(outcome.statuses) <= {"200", "503", "lost"}
    # On a busy machine a few connections are not there before the client ends.
    assert outcome.statuses.get("lost", 0) < 0.05 * sum(outcome.statuses.values())
    if "503" in outcome.statuses:  # the load may not get to run on a busy machine
        assert 'status="503"' in figures
    # Without a limit of waiting, half of the answers take two seconds or more. What the client was
    # late itself, as it has to share the machine, is no wait of the server's.
    assert outcome.percentile(0.5) - outcome.late < overload.USUAL


def test_items_come_as_they_are() -> None:
    assert list(gently(range(200), 64)) == list(range(200))
    assert list(gently([], 1)) == []


def test_another_thread_need_not_wait_for_the_end() -> None:
    """Without a rest, a thread that wakes up waits up to five milliseconds for each turn."""
    waits: list[float] = []
    ended = threading.Event()

    def wake() -> None:
        while not ended.is_set():
            begun = time.perf_counter()
            time.sleep(0.0002)
            waits.append(time.perf_counter() - begun)

    def work(every: int) -> float:
        waits.clear()
        for _ in gently(range(60_000), every):
            sum(range(50))
        return sorted(waits)[len(waits) // 2]

    waker = threading.Thread(target=wake)
    waker.start()
    try:
        pairs = [(work(64), work(1 << 30)) for _ in range(3)]
    finally:
        ended.set()
        waker.join()
    assert any(kind < rough for kind, rough in pairs), pairs


def test_the_collector_is_as_it_was() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()  # somebody else has stopped it
    finally:
        gc.enable()
    with pytest.raises(ZeroDivisionError), uncollected():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_plans_go_without_the_collector() -> None:
    """Frozen objects are looked at no more, so a plan that goes must be in no cycle."""
    with Runtime(executors=1) as runtime:
        runtime.register("first", shift(0.0))  # what is made once is made
        runtime.predict("first", [[0.0] * WIDTH] * 3)
        gc.collect()
        gc.disable()
        try:
            plan = shift(1.0)
            runtime.register("m", plan)
            runtime.predict("m", [0.0] * WIDTH)
            runtime.predict("m", [[0.0] * WIDTH] * 3)
            known, served = weakref.ref(plan), weakref.ref(runtime.endpoints.find("m"))
            del plan
            runtime.unregister("m")
            assert (known(), served()) == (None, None)
        finally:
            gc.enable()
