"""Headers by any spelling; what grows without an end in places where nobody looks; ends of work."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress

import pytest

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.routes import HandlerContext, HttpRoute
from runtime.http.wire.headers import spelling
from runtime.http.wire.interfaces import ModelState
from runtime.http.wire.messages import Request, Response
from tests.house import until
from tests.runtime.http.client import Client, replies
from tests.runtime.http.conftest import House
from tests.runtime.http.test_connection import infer, top

CHUNKED = b"POST /v2 HTTP/1.1\r\nhost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_names_are_read_by_any_spelling() -> None:
    known = spelling([b"Host", b"CONTENT-length", b"Expect"])
    assert known.names == (b"host", b"content-length", b"expect")
    assert (known.length, known.expect) == (b"CONTENT-length", b"Expect")
    assert known.plain
    for name in (b"Content-Encoding", b"inference-header-content-length", b"X-REQUEST-timeout-ms"):
        assert not spelling([b"Host", name]).plain
    request = Request("GET", "/", "", {b"Host": b"a", b"X": b"1", b"x": b"2"}, b"")
    assert request.header("host") is None
    spelled = {b"Host": b"a", b"X": b"1", b"x": b"2"}
    request = Request("GET", "/", "", spelled, b"", names=spelling(spelled).names)
    assert request.headers == {b"host": b"a", b"x": b"2"}  # the last one counts


@pytest.mark.parametrize("name", [b"X-Request-Timeout-Ms", b"x-request-timeout-ms"])
def test_headers_that_matter_do_so_in_any_case(house: House, name: bytes) -> None:
    (reply,) = house.client.say(infer(7, name + b": soon"))
    assert reply.status == 400
    assert "milliseconds" in reply.error


def test_more_spellings_than_are_remembered(house: House) -> None:
    for start in range(0, 1500, 30):
        asked = [infer(7, b"x-%d: y" % number) for number in range(start, start + 30)]
        made = house.client.say(b"".join(asked), count=30)
        assert {top(each) for each in made} == {9.0}


def test_trailers_have_an_end(house: House) -> None:
    with house.client.raw() as connection:
        connection.sendall(CHUNKED + b"2\r\n{}\r\n0\r\n")
        time.sleep(0.01)
        with suppress(OSError):  # it is refused before all was sent
            for number in range(20):  # 20 KiB where 8 may be
                connection.sendall(b"x-%d: %b\r\n" % (number, b"y" * 1000))
                time.sleep(0.002)  # in pieces
        (reply,) = replies(connection)
        assert reply.status == 431


def test_trailers_are_no_headers(house: House) -> None:
    whole = infer(7)
    head, _, body = whole.partition(b"\r\n\r\n")
    head = head.replace(b"content-length: %d" % len(body), b"transfer-encoding: chunked")
    chunk = b"%x\r\n%b\r\n0\r\nX-Request-Timeout-Ms: soon\r\n\r\n" % (len(body), body)
    made = house.client.say(head + b"\r\n\r\n" + chunk + whole, count=2)
    assert [top(each) for each in made] == [9.0, 9.0]


@pytest.mark.parametrize("pause", [0.0, 0.001])
def test_bodies_in_crumbs_have_a_limit(house: House, pause: float) -> None:
    with house.client.raw() as connection:
        connection.sendall(CHUNKED)
        crumbs = b"40\r\n" + b"x" * 0x40 + b"\r\n"
        for _ in range(18):  # a limit of 1 MiB
            try:
                connection.sendall(crumbs * 1024)
            except OSError:  # it was refused before all was sent
                break
            time.sleep(pause)
        (reply,) = replies(connection)
        assert reply.status == 413


def test_headers_that_come_in_two_pieces_are_counted_together(house: House) -> None:
    lines = [b"x-%d: %b\r\n" % (number, b"y" * 1000) for number in range(9)]
    with house.client.raw() as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nhost: h\r\n" + b"".join(lines[:5]))
        time.sleep(0.02)
        connection.sendall(b"".join(lines[5:]) + b"\r\n")
        (reply,) = replies(connection)
        assert reply.status == 431


# --- what takes long -----------------------------------------------------------------------------


def test_stop_does_not_wait_for_handlers_in_threads_for_ever(runtime: Runtime) -> None:
    begun, go = threading.Event(), threading.Event()

    async def wait() -> Response:
        begun.set()
        await asyncio.to_thread(go.wait, 120)
        return Response()

    def stuck(_service: HandlerContext, _request: Request) -> Awaitable[Response]:
        return wait()

    route = HttpRoute("GET", "/stuck", stuck, "Takes long")
    server = Server(runtime, ServerSettings(port=0, drain_seconds=0.2), routes=[route]).start()
    with Client(server.port).raw() as connection:
        connection.sendall(b"GET /stuck HTTP/1.1\r\nhost: h\r\n\r\n")
        assert begun.wait(60)
        server.stop(60)
        assert not go.is_set()
        assert connection.recv(10) == b""
    go.set()


class Many:
    """A repository that counts how often it is asked."""

    def __init__(self, *more: ModelState) -> None:
        self.asked, self.state, self.more = 0, "LOADING", more

    def index(self) -> Sequence[ModelState]:
        self.asked += 1
        return [ModelState("one", "1", self.state), *self.more]

    def load(self, name: str) -> None:
        raise NotImplementedError

    unload = load


def test_readiness_is_looked_up_until_it_is_there_and_then_now_and_then(runtime: Runtime) -> None:
    many = Many()
    with Server(runtime, ServerSettings(port=0, max_unread=0.0), repository=many) as server:
        client = Client(server.port)
        assert [client.get("/v2/health/ready").status for _ in range(3)] == [503] * 3
        many.asked, many.state = 0, "READY"
        ask = b"GET /v2/health/ready HTTP/1.1\r\nhost: h\r\n\r\n"
        assert {each.status for each in client.say(ask * 50, count=50)} == {200}
        assert many.asked <= 10
        many.state = "UNAVAILABLE"
        until(lambda: client.get("/v2/health/ready").status == 503)


@pytest.mark.parametrize("needs_all", [False, True])
def test_a_file_that_cannot_be_served_is_named(runtime: Runtime, needs_all: bool) -> None:  # noqa: FBT001
    many = Many(ModelState("bad", "2", "UNAVAILABLE", "no plan", refused=True))
    settings = ServerSettings(port=0, ready_needs_all=needs_all)
    with Server(runtime, settings, repository=many) as server:
        client = Client(server.port)
        loading = client.get("/v2/health/ready")
        assert (loading.status, loading.json["missing"]) == (503, ["one@1", "bad@2"])
        assert loading.headers["retry-after"] == client.get("/ping").headers["retry-after"] == "1"
        many.state = "READY"
        reply = client.get("/v2/health/ready")
        assert reply.status == (503 if needs_all else 200)
        assert reply.json == {"ready": not needs_all, "missing": ["bad@2"]}


@pytest.mark.parametrize(("again", "status", "later"), [(False, 404, None), (True, 503, "2")])
def test_a_model_of_the_folder_that_was_refused_is_not_unknown(
    runtime: Runtime,
    again: bool,  # noqa: FBT001 (as pytest passes it)
    status: int,
    later: str | None,
) -> None:
    bad = ModelState("bad", "2", "UNAVAILABLE", "a secret", refused=True, again=again)
    spare = ModelState("spare", "1", "UNAVAILABLE", "unloaded", wanted=False, refused=True)
    with Server(runtime, ServerSettings(port=0), repository=Many(bad, spare)) as server:
        client = Client(server.port)
        for path in ("/predict/bad", "/v2/models/bad/versions/2/infer", "/v1/models/bad:predict"):
            reply = client.post(path, [1.0])
            assert (reply.status, reply.headers.get("retry-after")) == (status, later)
            assert "at bad; POST /v2/repository/index has the reason" in reply.error
        for path in ("/predict/spare", "/predict/bad@3"):
            reply = client.post(path, [1.0])
            assert (reply.status, "nothing is registered" in reply.error) == (404, True)


@pytest.mark.parametrize("needs_all", [False, True])
def test_an_empty_folder_is_ready_unless_all_is_needed(runtime: Runtime, needs_all: bool) -> None:  # noqa: FBT001
    many = Many()
    many.index = lambda: ()  # type: ignore[method-assign]  # a volume that is not mounted
    settings = ServerSettings(port=0, ready_needs_all=needs_all)
    with Server(runtime, settings, repository=many) as server:
        reply = Client(server.port).get("/v2/health/ready")
    expected = (
        {"ready": False, "loading": "the folder has no model"} if needs_all else {"ready": True}
    )
    assert (reply.status, reply.json) == (503 if needs_all else 200, expected)


def test_without_any_model_that_can_be_served_it_is_not_ready(runtime: Runtime) -> None:
    many = Many(ModelState("bad", "2", "UNAVAILABLE", "no plan", refused=True))
    many.index = lambda: many.more  # type: ignore[method-assign]  # only the bad one
    with Server(runtime, ServerSettings(port=0, max_unread=0.0), repository=many) as server:
        assert Client(server.port).get("/v2/health/ready").status == 503
