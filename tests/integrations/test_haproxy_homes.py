"""HAProxy asks the homes of a model first, and other replicas where these are gone."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runtime.cluster.serving import ClusterClient
from runtime.cluster.serving.bodies import Homes, MemberState, Roster
from runtime.cluster.serving.haproxy import HAProxy
from runtime.http.server import ServerError
from tests.house import until

pytestmark = pytest.mark.integrations

NODES = 3


class Said(BaseHTTPRequestHandler):
    """Answers with its port."""

    protocol_version = "HTTP/1.1"
    server: ThreadingHTTPServer

    def do_GET(self) -> None:
        body = str(self.server.server_port).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
        """Say nothing."""


@contextmanager
def upstream() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Said) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # health checks hang up
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def ports(client: ClusterClient, path: str) -> set[int]:
    return {int(client.request("GET", path).body) for _ in range(9)}


@pytest.mark.skipif(not shutil.which("haproxy"), reason="HAProxy is not installed")
def test_haproxy_shares_its_port_with_nobody(tmp_path: Path) -> None:
    """Ray Serve's proxy lets others listen beside it, and would answer half of the requests."""
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as busy:
        bind = f"127.0.0.1:{busy.getsockname()[1]}"
        proxy = HAProxy(bind, "http://127.0.0.1:1", tmp_path, NODES)
        with pytest.raises(ServerError, match="cannot listen here") as refused:
            proxy.start()
    assert refused.value.where == bind
    proxy.start()
    HAProxy(bind, "http://127.0.0.1:2", tmp_path, NODES).start()  # takes the place of that one
    proxy.stop()


@pytest.mark.skipif(not shutil.which("haproxy"), reason="HAProxy is not installed")
def test_haproxy_asks_homes_first(tmp_path: Path) -> None:
    bind = "127.0.0.1:18747"
    with ExitStack() as stack:
        there = [stack.enter_context(upstream()) for _ in range(NODES)]
        urls = [f"http://127.0.0.1:{port}" for port in there]
        states = [MemberState(number, url, "ready") for number, url in enumerate(urls)]
        proxy = HAProxy(bind, urls[0], tmp_path, 8)
        proxy.start()
        stack.callback(proxy.stop)
        front = Roster(1, [MemberState(9, f"http://{bind}", "ready")])
        client = stack.enter_context(ClusterClient(look=lambda: front))
        asked = partial(ports, client)
        models = {f"m{number}": [number % NODES] for number in range(1000)} | {"Größe 1": [2]}
        proxy.update(Roster(1, states), Homes(1, models))
        until(lambda: asked("/predict/nowhere") == set(there))
        for number in (0, 1, 2, 998, 999):
            assert asked(f"/predict/m{number}") == {there[number % NODES]}
        assert asked("/predict/m1@2") == {there[1]}
        assert asked("/v2/models/m1/versions/2/infer") == {there[1]}
        assert asked("/v1/models/m2:predict") == {there[2]}
        assert asked("/predict/Gr%C3%B6%C3%9Fe%201") == {there[2]}
        proxy.update(Roster(2, states[:2]), Homes(1, models))  # a home that is not there
        assert asked("/predict/m2") == {there[0], there[1]}
        proxy.update(Roster(3, states), Homes(2, {"m1": [0]}))
        assert asked("/predict/m1") == {there[0]}
        assert asked("/predict/m0") == set(there)
