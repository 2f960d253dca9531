"""A server begins once, says where it listens, and leaves nobody alone who has asked."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import pytest

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.routes import HttpRoute
from runtime.http.server import ServerError
from runtime.http.wire.connection import Connection
from runtime.http.wire.messages import Response
from tests.house import until
from tests.runtime.http.client import Client
from tests.runtime.plans import shift


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime(executors=1) as made:
        made.register("a", shift(1.0), background=False)
        yield made


def test_a_server_runs_once(runtime: Runtime) -> None:
    server = Server(runtime, ServerSettings(port=0, max_unread=0.0)).start()
    url = server.url
    with pytest.raises(ServerError, match="runs once"):
        server.start()
    assert Client(server.port).get("/v2/health/ready").status == 200
    server.stop()
    assert server.url == url
    for again in (server.start, server.serve_forever):
        with pytest.raises(ServerError, match="runs once") as refused:
            again()
        assert url in str(refused.value)
    with Server(runtime, ServerSettings(port=server.port)) as other:
        assert Client(other.port).get("/v2/health/ready").status == 200


def test_a_port_that_is_taken_can_be_tried_again(runtime: Runtime) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        server = Server(runtime, ServerSettings(port=busy.getsockname()[1]))
        with pytest.raises(ServerError, match="cannot listen"):
            server.start()
    with server:
        assert Client(server.port).get("/v2/health/live").status == 200


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.2", "127.0.0.2"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")]
)
def test_the_address_is_that_of_the_given_socket(runtime: Runtime, host: str, shown: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("this machine has no such address")
    url = f"http://{shown}:{listener.getsockname()[1]}"
    server = Server(runtime, ServerSettings(port=1), sockets=[listener])
    assert server.url == url
    with server:
        assert server.url == url
    assert server.url == url


def test_the_host_of_the_settings_is_shown_as_it_is_given(runtime: Runtime) -> None:
    with Server(runtime, ServerSettings(host="localhost", port=0)) as server:
        assert server.url == f"http://localhost:{server.port}"


def test_a_closed_runtime_is_not_ready(runtime: Runtime) -> None:
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        client = Client(server.port)
        assert client.get("/v2/health/ready").status == 200
        runtime.close()
        assert client.get("/v2/health/ready").status == 503
        assert client.get("/v2/health/live").status == 200
        assert client.get("/v2/models/a/ready").status == 503


def test_only_an_endpoint_has_a_route(runtime: Runtime) -> None:
    with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
        client = Client(server.port)
        assert client.get("/v2/models/a/route").json == {"champion": "a@1"}
        for name in ("a@1", "nobody", "a@9"):
            assert client.get(f"/v2/models/{name}/route").status == 404
            assert client.post(f"/v2/models/{name}/promote", {}).status == 404


SOME = HttpRoute("GET", "/some", lambda *_: Response(bytes(30_000), content_type="x/y"), "Some")
LIVE = b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0), background=False)
        with Server(runtime, ServerSettings(port=0, idle_seconds=2.0), routes=[SOME]) as made:
            yield made


def moved(server: Server, seconds: float) -> None:
    """Have so many seconds gone by for the server."""
    server.loop.call_soon_threadsafe(server.check, perf_counter() + seconds)


def test_who_reads_no_small_answers_is_disconnected(server: Server) -> None:
    """The answers fill the system's memory for the connection, and are no reason to pause."""
    before = server.connections
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.connect(("127.0.0.1", server.port))
        client.settimeout(0.05)
        asked = 0
        for _ in range(400):
            try:
                client.sendall(b"GET /some HTTP/1.1\r\nhost: x\r\n\r\n")
            except TimeoutError:  # the server reads no more, either
                break
            asked += 1
        assert asked > 10
        until(lambda: server.connections == before + 1)
        time.sleep(0.1)
        for seconds in (31.0, 62.0):
            moved(server, seconds)
            time.sleep(0.05)
        until(lambda: server.connections == before, "it is kept for ever", seconds=5.0)


class Unread:
    """A transport to a client that reads nothing: what is closed waits for it to read the rest."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def get_extra_info(self, _name: str) -> None:
        """Nothing is known of the client."""

    def is_closing(self) -> bool:
        return bool(self.said)

    def close(self) -> None:
        self.said.append("close")

    def abort(self) -> None:
        self.said.append("abort")


def test_what_is_closed_is_not_open_for_ever(server: Server) -> None:
    transport: Any = Unread()
    connection = Connection(server, server.service)
    connection.connection_made(transport)
    for seconds, said in ((1.0, []), (3.0, ["close"]), (1.5, ["close"]), (2.5, ["close", "abort"])):
        connection.check(perf_counter() + seconds)
        assert transport.said[:2] == said
    connection.connection_lost(None)


def conversation(server: Server, size: int, *requests: bytes) -> bytes:
    """All that a client hears that sends this in pieces of a size, one after the other."""
    heard = b""
    with socket.create_connection(("127.0.0.1", server.port), 10.0) as client:
        for number, sent in enumerate(requests, 1):
            for start in range(0, len(sent), size):
                client.sendall(sent[start : start + size])
                if size < len(sent):
                    time.sleep(0.001)
            while heard.count(b"\r\n\r\n{") < number and (part := client.recv(9999)):
                heard += part
    return heard


BODY = b"[0,1,2,3]"
PLAIN, CHUNKED = b"content-length: 9\r\n\r\n" + BODY, b"transfer-encoding: chunked\r\n\r\n"
CHUNKED += b"4\r\n[0,1\r\n5\r\n,2,3]\r\n0\r\n\r\n"


@pytest.mark.parametrize("size", [1 << 20, 29, 7])
@pytest.mark.parametrize("end", [PLAIN, CHUNKED], ids=["whole", "chunks"])
@pytest.mark.parametrize(
    "offer",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA",
        b"connection: upgrade\r\nUPGRADE: websocket",
        b"Upgrade: h2c, TLS/1.0\r\nConnection: keep-alive, Upgrade",
        b"Connection: keep-alive\r\nUpgrade: h2c",
    ],
)
def test_an_offer_of_another_protocol_is_declined(
    server: Server, offer: bytes, end: bytes, size: int
) -> None:
    """As Java's client offers it with the first request that it sends."""
    asked = b"POST /predict/m HTTP/1.1\r\nhost: x\r\n" + offer + b"\r\n" + end
    heard = conversation(server, size, LIVE, asked, asked, LIVE)
    assert heard.count(b"HTTP/1.1 200 OK") == 4
    assert heard.count(b'"top":4.0') == 2


def test_offers_may_be_sent_ahead_of_answers(server: Server) -> None:
    offer = b"Connection: upgrade\r\nUpgrade: h2c\r\n"
    asked = b"POST /predict/m HTTP/1.1\r\nhost: x\r\n" + offer + PLAIN
    heard = conversation(server, 1 << 20, asked + LIVE + asked + LIVE, b"", b"", b"")
    assert heard.count(b"HTTP/1.1 200 OK") == 4


def test_a_tunnel_is_no_offer(server: Server) -> None:
    heard = conversation(server, 1000, b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\nupgrade: x\r\n\r\n")
    assert heard.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405"))


def test_a_kept_connection_is_answered_by_the_version_of_now() -> None:
    with Runtime(executors=1) as runtime:
        runtime.register("m", shift(1.0), background=False)
        with Server(runtime, ServerSettings(port=0, cache_bytes=1 << 16)) as server:
            client = Client(server.port)
            for version in range(2, 6):
                assert client.post("/predict/m", BODY).json["top"] == 3.0 + version - 1
                runtime.register("m", shift(float(version)), background=False)
                assert client.post("/predict/m", BODY).json["top"] == 3.0 + version
                runtime.unregister("m", str(version - 1))
            runtime.switch("m", "5")
            assert client.post("/predict/m@5", BODY).json["top"] == 8.0
            assert client.post("/predict/m@2", BODY).status == 404
