"""A server begins once, says where it listens, and is not ready when its runtime is closed."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.server import ServerError
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
