"""A client of a cluster some of whose addresses never answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from runtime.cluster.serving import ClusterClient
from runtime.cluster.serving.bodies import Homes, MemberState, Roster
from runtime.cluster.serving.front import Front

WAIT = 0.4


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def front() -> Iterator[Front]:
    states = [MemberState(n, f"http://127.0.0.1:{9 + n}", "ready") for n in range(2)]
    known = Roster(1, states, homes=1)
    made = Front("127.0.0.1", 0, (lambda: known, lambda: Homes(1, {"m": [1]})), lambda: known)
    made.start()
    yield made
    made.stop()


def test_looking_waits_once_for_who_never_answers(silent: str, front: Front) -> None:
    with ClusterClient(silent, front.url, timeout=WAIT, refresh=0.0) as client:
        took = []
        for _ in range(4):
            began = time.monotonic()
            assert [each.number for each in client.members().replicas] == [0, 1]
            took.append(time.monotonic() - began)
    assert took[0] >= WAIT
    assert max(took[1:]) < WAIT


def test_homes_are_asked_of_who_answers(silent: str, front: Front) -> None:
    with ClusterClient(silent, front.url, timeout=WAIT, refresh=60.0) as client:
        assert client.homes_of("m") == ["http://127.0.0.1:10"]


def test_a_connection_in_use_is_closed_with_its_client() -> None:
    """A client that is closed by one thread while another waits for an answer leaves nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(20.0)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        members = Roster(0, [MemberState(0, url, "ready")])
        client = ClusterClient(url, look=lambda: members)
        asked = pool.submit(client.request, "GET", "/v2")
        served, _ = listener.accept()
        with served:
            served.settimeout(20.0)
            assert served.recv(1 << 16).startswith(b"GET /v2")
            client.close()
            served.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            assert asked.result(20.0).body == b"{}"
            assert served.recv(1) == b"", "the connection is closed"
