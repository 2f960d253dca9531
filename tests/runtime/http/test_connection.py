"""Bytes on a connection: order, limits, slowness, and an orderly end."""

from __future__ import annotations

import json
import logging
import select
import socket
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flour.data.batch import Batch
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.routes import HandlerContext, HttpRoute
from runtime.http.wire import connection as module
from runtime.http.wire.body_reading import READ_BYTES
from runtime.http.wire.messages import Request, Response
from runtime.http.wire.problems import refusal
from runtime.service.answerers import InferCall
from runtime.service.version import ModelVersion
from tests.house import until
from tests.runtime.http.answering import Passing
from tests.runtime.http.client import Client, replies
from tests.runtime.http.conftest import House

BODY = b'{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP64", "data": [1, 2, 3, %d]}]}'


def infer(value: int, *headers: bytes, method: bytes = b"POST", size: int = 0) -> bytes:
    body = (BODY % value).ljust(size)
    lines = [
        method + b" /v2/models/shift/infer HTTP/1.1",
        b"host: here",
        b"content-length: %d" % len(body),
        *headers,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def top(reply: Any) -> float:
    value: float = reply.json["outputs"][1]["data"][0]
    return value


def test_a_connection_is_kept_and_answers_in_order(house: House) -> None:
    with house.client.raw() as connection:
        for value in (7, 8):
            connection.sendall(infer(value))
            assert top(replies(connection)[0]) == value + 2
        connection.sendall(b"".join(map(infer, range(4, 40))))
        made = replies(connection, 36)
    assert [top(each) for each in made] == [value + 2 for value in range(4, 40)]


@pytest.mark.parametrize("more", [-1, 0, 1, READ_BYTES, 10 * READ_BYTES])
def test_a_body_that_goes_past_the_parser_ends_where_the_next_request_begins(
    house: House, more: int
) -> None:
    head = len(infer(1)) - len(BODY % 1) + 4  # the length takes more digits
    sizes = [READ_BYTES - head + more, 500, READ_BYTES + more, 2 * READ_BYTES]
    message = b"".join(infer(value, size=size) for value, size in enumerate(sizes, 4))
    made = house.client.say(message, count=len(sizes))
    assert [top(each) for each in made] == [6, 7, 8, 9]
    cut = (head - 10, head, READ_BYTES, READ_BYTES + 1, len(message) - 1)
    with house.client.raw() as connection:
        for start, stop in pairwise((0, *sorted(cut), len(message))):
            connection.sendall(message[start:stop])
            time.sleep(0.01)
        assert [top(each) for each in replies(connection, len(sizes))] == [6, 7, 8, 9]


def test_many_large_answers_on_one_connection(house: House) -> None:
    asked = b"GET /openapi.json HTTP/1.1\r\nhost: h\r\n\r\n"
    made = house.client.say(asked * 300 + infer(7), count=301)
    assert len({each.body for each in made[:300]}) == 1
    assert top(made[300]) == 9.0


def test_slow_requests_hold_up_those_behind_them_only(house: House) -> None:
    load = b"POST /v2/repository/index HTTP/1.1\r\nhost: here\r\n\r\n"
    made = house.client.say(load + infer(7) + load + infer(9), count=4)
    assert [each.status for each in made] == [200] * 4
    assert (made[0].json[0]["name"], top(made[1]), top(made[3])) == ("iris", 9.0, 11.0)


def test_a_request_may_come_byte_by_byte(house: House) -> None:
    whole = infer(5)
    with house.client.raw() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(whole)):
            connection.sendall(whole[place : place + 1])
        assert top(replies(connection)[0]) == 7.0


def test_chunked_bodies(house: House) -> None:
    body = BODY % 6
    head = b"POST /v2/models/shift/infer HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%b\r\n" % (1, body[n : n + 1]) for n in range(len(body)))
    made = house.client.say(head + chunks + b"0\r\ntrailer: x\r\n\r\n", infer(7), count=2)
    assert [top(each) for each in made] == [8.0, 9.0]


def test_expect_continue_is_answered_first(house: House) -> None:
    whole = infer(7, b"expect: 100-continue")
    head, _, body = whole.partition(b"\r\n\r\n")
    with house.client.raw() as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert top(replies(connection)[0]) == 9.0
    assert house.client.say(infer(7, b"expect: a miracle"))[0].status == 417


def test_old_and_closing_clients_lose_the_connection(house: House) -> None:
    for request in [
        b"GET /v2 HTTP/1.0\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
    ]:
        with house.client.raw() as connection:
            connection.sendall(request + b"GET /v2 HTTP/1.1\r\nhost: h\r\n\r\n")
            (reply,) = replies(connection)
            assert reply.status == 200
            assert reply.headers["connection"] == "close"
            assert connection.recv(100) == b""


def test_an_old_client_may_keep_its_connection(house: House) -> None:
    request = b"GET /v2 HTTP/1.0\r\nconnection: keep-alive\r\n\r\n"
    assert [each.status for each in house.client.say(request, request, count=2)] == [200, 200]


def test_a_client_that_says_no_more_still_gets_its_answers(house: House) -> None:
    index = b"POST /v2/repository/index HTTP/1.1\r\nhost: here\r\n\r\n"
    with house.client.raw() as connection:
        connection.sendall(index + infer(7))
        connection.shutdown(socket.SHUT_WR)
        made = replies(connection, 2)
        assert [each.status for each in made] == [200, 200]
        assert connection.recv(10) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"hello there\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nhost: h\r\nbad header\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nhost: h\r\ncontent-length: x\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nhost: h\r\ncontent-length: -1\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0",
        b"POST /v2 HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
        b"POST /v2 HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_refused_and_ends_the_connection(house: House, data: bytes) -> None:
    with house.client.raw() as connection:
        connection.sendall(data)
        (reply,) = replies(connection)
        assert reply.status == 400
        assert reply.error
        assert connection.recv(10) == b""
    assert house.client.get("/v2").status == 200


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"", "no header host"),
        (b"host: h\r\nhost: g\r\n", "two headers host"),
        (b"host: h\r\nHost: h\r\n", "two headers host"),
        (b"host: h\r\nauthorization: a\r\nAuthorization: b\r\n", "two headers authorization"),
        (b"host: h\r\nauthorization: a\r\nauthorization: b\r\n", "two headers authorization"),
        (b"host: h\r\ntransfer-encoding: gzip, chunked\r\n", "transfer-encoding: gzip, chunked"),
    ],
)
@pytest.mark.parametrize("before", [b"", infer(7), infer(7) * 2])
@pytest.mark.parametrize("cut", [0, 5, 20])
def test_requests_that_are_not_framed_for_certain(
    house: House, head: bytes, found: str, before: bytes, cut: int
) -> None:
    data = b"GET /v2 HTTP/1.1\r\n" + head + b"x: y\r\n\r\n"
    with house.client.raw() as connection:
        connection.sendall(before + data[:cut])
        earlier = replies(connection, before.count(b"POST"))
        connection.sendall(data[cut:])
        (reply,) = replies(connection)
    assert {each.status for each in earlier} <= {200}
    assert reply.status == (501 if b"gzip" in head else 400)
    assert reply.error == f"this is no request as HTTP/1.1 (RFC 9112) frames them (found: {found})"


def test_bodies_may_look_like_headers(house: House) -> None:
    body = b'"\r\nhost: a\r\nhost: b\r\n\r\n"'
    head = b"POST /predict/text HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(body)
    made = house.client.say(head + body + infer(7), count=2)
    assert [each.status for each in made] == [400, 200]
    assert "JSON" in made[0].error  # JSON has no line breaks in strings


def test_nonsense_after_a_request_does_not_spoil_its_answer(house: House) -> None:
    made = house.client.say(infer(7) + b"\x00\x00\x00\r\n\r\n", count=2)
    assert (made[0].status, made[1].status) == (200, 400)


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://any.host:80/v2/health/live?x=1", 200),
        (b"HTTPS://any.host/v2/health/live", 200),
        (b"http://any.host", 200),
        (b"http://any.host/v2/models/none", 404),
        (b"ftp://any.host/v2/health/live", 404),
    ],
)
def test_targets_as_proxies_get_them(house: House, target: bytes, status: int) -> None:
    (reply,) = house.client.say(b"GET %b HTTP/1.1\r\nhost: any.host\r\n\r\n" % target)
    assert reply.status == status


def test_headers_and_bodies_have_limits(house: House) -> None:
    large = b"x-large: " + b"x" * (9 << 10)
    assert house.client.say(infer(7, large))[0].status == 431
    many = [b"x-%d: y" % n for n in range(2000)]
    assert house.client.say(infer(7, *many))[0].status == 431
    assert (
        house.client.say(b"GET /" + b"x" * (9 << 10) + b" HTTP/1.1\r\nhost: h\r\n\r\n")[0].status
        == 431
    )
    body = b"POST /v2 HTTP/1.1\r\nhost: h\r\ncontent-length: 2000000\r\n\r\n"
    assert house.client.say(body)[0].status == 413
    chunk = (
        b"POST /v2 HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
        b"fffff\r\n" + b"x" * 0xFFFFF
    )
    made = house.client.say(chunk + b"\r\nfffff\r\n" + b"x" * 0xFFFFF)
    assert made[0].status == 413


def test_an_endless_header_is_cut_off(house: House) -> None:
    with house.client.raw() as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nhost: h\r\nx: ")
        with suppress(OSError):  # it is refused before all was sent
            for _ in range(20):
                connection.sendall(b"x" * 1000)
                time.sleep(0.001)  # in pieces
        (reply,) = replies(connection)
        assert reply.status == 431


def test_a_client_that_goes_away_leaves_nothing(house: House) -> None:
    before = house.server.connections
    for _ in range(20):
        with house.client.raw() as connection:
            connection.sendall(infer(7)[:-5])
    until(lambda: house.server.connections <= before)
    assert house.client.get("/v2").status == 200


# --- servers of their own ------------------------------------------------------------------------


class Slow(Passing):
    """Answers when it is told to."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.asked, self.go = threading.Event(), threading.Event()
        self.cancelled = threading.Event()
        self.futures: list[Future[dict[str, Any]]] = []
        self.quick = self._never

    def _never(self, version: ModelVersion, batch: Batch) -> None:
        return None

    def answer(self, ask: InferCall) -> Future[dict[str, Any]]:
        future: Future[dict[str, Any]] = Future()
        self.futures.append(future)

        def work() -> None:
            self.asked.set()
            self.go.wait(60)
            if future.set_running_or_notify_cancel():
                future.set_result(super(Slow, self).answer(ask).result())
            else:
                self.cancelled.set()

        threading.Thread(target=work, daemon=True).start()
        return future


def serving(runtime: Runtime, slow: Slow | None = None, **known: Any) -> Server:
    return Server(runtime, ServerSettings(port=0, **known), answering=slow)


def pass_time(server: Server, seconds: float) -> None:
    """Look at the server's clients as if it were so many seconds later."""
    server.loop.call_soon_threadsafe(server.check, time.perf_counter() + seconds)


def hears(server: Server, connection: socket.socket, seconds: float) -> bool:
    """Whether a client hears something so many seconds later."""
    pass_time(server, seconds)
    return bool(select.select([connection], [], [], 0.01)[0])


def test_slow_clients_are_told_and_cut_off(runtime: Runtime) -> None:
    with serving(runtime, header_seconds=10, body_seconds=10, body_rate=1 << 30) as server:
        client = Client(server.port)
        connections = [client.raw() for _ in range(2)]
        connections[0].sendall(infer(7)[:30])
        connections[1].sendall(infer(7)[:-3])
        for each in connections:
            until(lambda each=each: hears(server, each, 11.0))  # type: ignore[misc]
        told = [replies(each)[0] for each in connections]
        assert [each.status for each in told] == [408, 408]
        assert "headers" in told[0].error
        assert "body" in told[1].error
        assert [each.recv(10) for each in connections] == [b"", b""]
        for each in connections:
            each.close()


def test_silent_clients_are_cut_off(runtime: Runtime) -> None:
    with serving(runtime, idle_seconds=75) as server, Client(server.port).raw() as connection:
        until(lambda: hears(server, connection, 76.0))
        assert connection.recv(10) == b""


@pytest.mark.parametrize("cut", [0, 30, -3], ids=["idle", "headers", "body"])
def test_clients_within_their_limits_are_waited_for(runtime: Runtime, cut: int) -> None:
    limits = {"header_seconds": 1000, "body_seconds": 1000, "idle_seconds": 1000}
    with serving(runtime, None, **limits) as server, Client(server.port).raw() as connection:
        connection.sendall(infer(7)[:cut])
        for _ in range(5):
            assert not hears(server, connection, 900.0)
        connection.sendall(infer(7)[cut:])
        assert top(replies(connection)[0]) == 9.0


def test_a_client_that_does_not_read_is_cut_off(runtime: Runtime) -> None:
    rows = 4000
    data = b",".join([b"1"] * (4 * rows))
    body = b'{"inputs":[{"name":"x","shape":[%d,4],"datatype":"FP64","data":[%b]}]}' % (rows, data)
    request = (
        b"POST /v2/models/shift/infer HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n" % len(body)
    ) + body
    with serving(runtime, write_seconds=0.2) as server:
        connection = Client(server.port).raw()
        connection.settimeout(0.2)
        with pytest.raises(OSError):  # noqa: PT012 (it is read no more, then cut off)
            end = time.monotonic() + 60
            while time.monotonic() < end:
                with suppress(TimeoutError):
                    connection.sendall(request)
            raise AssertionError("it was read without an end")
        connection.close()
        assert Client(server.port).get("/v2").status == 200


def test_too_many_connections_are_told_so(runtime: Runtime, tmp_path: Path) -> None:
    """They are logged with the client, and without a method that nobody has said."""
    log = tmp_path / "log"
    with serving(runtime, max_connections=2, access_log=log) as server:
        client = Client(server.port)
        first, second = client.raw(), client.raw()
        first.sendall(b"GET /v2 HTTP/1.1\r\nhost: h\r\n\r\n")
        assert replies(first)[0].status == 200
        second.sendall(b"GET /v2 HTTP/1.1\r\nhost: h\r\n\r\n")
        assert replies(second)[0].status == 200
        with client.raw() as third:
            (reply,) = replies(third)
        assert reply.status == 503
        assert reply.headers["retry-after"]
        first.close()
        second.close()
    line = json.loads(log.read_text().splitlines()[-1])
    assert (line["status"], line["method"], line["peer"]) == (503, "-", "127.0.0.1")


def test_a_client_of_tls_is_told_that_the_port_is_plain(house: House) -> None:
    with house.client.raw() as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64))
        (reply,) = replies(connection)
    assert (reply.status, reply.error) == (400, "this port speaks plain HTTP, not TLS: use http://")


def test_a_client_that_hangs_up_cancels_its_call(runtime: Runtime) -> None:
    slow = Slow(runtime)
    with serving(runtime, slow) as server:
        with Client(server.port).raw() as connection:
            connection.sendall(infer(7))
            assert slow.asked.wait(60)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        until(lambda: not server.connections and slow.futures[0].cancelled())
        slow.go.set()
        assert slow.cancelled.wait(60)


def test_stop_finishes_what_is_on_its_way(runtime: Runtime) -> None:
    slow = Slow(runtime)
    server = serving(runtime, slow).start()
    client = Client(server.port)
    idle = client.raw()
    idle.sendall(b"GET /v2 HTTP/1.1\r\nhost: h\r\n\r\n")
    assert replies(idle)[0].status == 200
    busy = client.raw()
    busy.sendall(infer(7))
    assert slow.asked.wait(60)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert idle.recv(10) == b""  # nothing was on its way there
    with pytest.raises(OSError):
        client.raw()
    assert stopping.is_alive()
    slow.go.set()
    (reply,) = replies(busy)
    assert (reply.status, top(reply)) == (200, 9.0)
    assert reply.headers["connection"] == "close"
    busy.close()
    stopping.join(60)
    assert not stopping.is_alive()
    idle.close()


REQUEST = b"GET /v2 HTTP/1.1\r\nhost: h\r\n\r\n"


def test_stop_hears_who_has_just_come(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has connected has something to ask; it may take a moment to arrive."""
    monkeypatch.setattr(module, "_FIRST_WORDS_SECONDS", 60.0)
    server = Server(runtime, ServerSettings(port=0, max_unread=0.0)).start()
    go = threading.Event()
    server.loop.call_soon_threadsafe(go.wait, 60)  # too busy to accept anyone before it stops
    new, slow, silent = (Client(server.port).raw() for _ in range(3))
    slow.sendall(REQUEST[:9])
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    go.set()
    until(lambda: server.draining and server.connections == 3)
    new.sendall(REQUEST)
    slow.sendall(REQUEST[9:])
    for each in (new, slow):
        (reply,) = replies(each)
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        each.close()
    monkeypatch.setattr(module, "_FIRST_WORDS_SECONDS", 0.0)
    assert silent.recv(10) == b""  # but not for ever
    stopping.join(60)
    assert not stopping.is_alive()
    silent.close()


def test_readiness_ends_before_connections_are_refused(runtime: Runtime) -> None:
    server = Server(runtime, ServerSettings(port=0, drain_delay=1.0)).start()
    client = Client(server.port)
    assert client.get("/v2/health/ready").status == 200
    ending = threading.Thread(target=server.stop)
    ending.start()
    until(lambda: client.get("/v2/health/ready").status == 503)
    reply = client.get("/v2")
    assert (reply.status, reply.headers["connection"]) == (200, "close")
    ending.join()
    with pytest.raises(ConnectionRefusedError):
        client.get("/v2")


def test_stop_does_not_wait_for_ever(runtime: Runtime) -> None:
    slow = Slow(runtime)
    server = serving(runtime, slow, drain_seconds=0.1).start()
    with Client(server.port).raw() as connection:
        connection.sendall(infer(7))
        assert slow.asked.wait(60)
        server.stop(60)
        assert connection.recv(10) == b""
    slow.go.set()


def test_guards_and_observers_see_every_request(runtime: Runtime) -> None:
    seen: list[tuple[str, int, float]] = []

    def guard(request: Request) -> Response | None:
        return refusal("no", 401) if request.header("authorization") is None else None

    def observer(request: Request, response: Response, seconds: float) -> None:
        seen.append((request.path, response.status, seconds))

    server = Server(
        runtime, ServerSettings(port=0, max_unread=0.0), guards=[guard], observers=[observer]
    )
    with server:
        client = Client(server.port)
        assert client.get("/v2").status == 401
        assert client.get("/v2", authorization="me").status == 200
        assert client.say(b"nonsense\r\n\r\n")[0].status == 400
    assert [each[:2] for each in seen] == [("/v2", 401), ("/v2", 200), ("", 400)]
    assert all(0 <= each[2] < 60 for each in seen)


def test_routes_can_be_added(runtime: Runtime) -> None:
    def hello(service: HandlerContext, request: Request) -> Response:
        assert service.runtime is runtime
        return Response(request.params["name"].encode(), content_type="text/plain")

    route = HttpRoute("GET", "/hello/{name}", hello, "Says hello", content_type="text/plain")
    with Server(runtime, ServerSettings(port=0, max_unread=0.0), routes=[route]) as server:
        client = Client(server.port)
        reply = client.get("/hello/w%C3%B6rld%2Fx")
        assert reply.body.decode() == "wörld/x"
        assert reply.headers["content-type"] == "text/plain"
        assert client.get("/hello/%FF").status == 404
        assert "/hello/{name}" in client.get("/openapi.json").json["paths"]


def test_what_went_wrong_in_here_is_not_told(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    def quick(*_: object) -> None:
        raise ZeroDivisionError("secret")

    broken = Passing(runtime)
    broken.quick = quick
    with (
        caplog.at_level(logging.ERROR, "pretzel.http"),
        Server(runtime, ServerSettings(port=0, max_unread=0.0), answering=broken) as server,
    ):
        (reply,) = Client(server.port).say(infer(7))
        assert (reply.status, reply.json) == (500, {"error": "internal error"})
    assert "secret" in caplog.text


def test_a_closed_runtime_is_503(runtime: Runtime) -> None:
    with serving(runtime) as server:
        runtime.close()
        (reply,) = Client(server.port).say(infer(7))
    assert reply.status == 503
    assert reply.headers["retry-after"]


def test_a_taken_port_is_an_error_with_a_hint(runtime: Runtime) -> None:
    from runtime.http.server import ServerError

    with serving(runtime) as server, pytest.raises(ServerError, match="another port"):
        Server(runtime, ServerSettings(port=server.port)).start()


def test_a_socket_may_be_handed_in(runtime: Runtime) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    with Server(runtime, sockets=[listening]) as server:
        assert server.port == port
        assert Client(port).get("/v2").status == 200
