"""Heads that came before are not parsed again, and mean the same: whatever pieces they come in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.wire.connection import Connection
from tests.runtime.http.test_connection import infer
from tests.runtime.plans import shift

END = b"\r\n\r\n"


class Sent:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def get_extra_info(self, _name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Runtime(executors=1) as runtime:
        runtime.register("shift", shift(2.0), background=False)
        yield Server(runtime, ServerSettings(metrics=False))


class Client:
    """A client of a server without a socket."""

    def __init__(self, server: Server) -> None:
        self.sent, self.connection = Sent(), Connection(server, server.service)
        self.connection.connection_made(self.sent)  # type: ignore[arg-type]  # it has what is used

    def says(self, *pieces: bytes) -> bytes:
        """What is answered to these bytes, read piece by piece."""
        before = len(self.sent.data)
        for piece in pieces:
            self.connection.get_buffer(0)[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))
        return self.sent.data[before:]


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client of a server whose event loop never runs, and that has read nothing yet."""
    monkeypatch.setattr(Server, "loop", None, raising=False)
    monkeypatch.setattr(server.lag, "since", lambda now, _: now)
    server.known.clear()
    return Client(server)


def test_the_parser_is_not_asked_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = client.says(infer(5)), client.says(infer(6))
    assert first.count(b" 200 ") == second.count(b" 200 ") == 1

    def parsed(_: object) -> None:
        raise AssertionError("a head that was known has been parsed")

    monkeypatch.setattr(Connection, "on_headers_complete", parsed)
    assert client.says(infer(5)) == first
    assert client.says(infer(6)) == second


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.sampled_from([1, 7, 12]), min_size=1, max_size=4), st.data())
def test_pieces_of_requests(client: Client, values: list[int], data: st.DataObject) -> None:
    requests = [infer(value) for value in values]
    expected = b"".join(map(client.says, requests))
    whole = b"".join(requests)
    cuts = data.draw(st.sets(st.sampled_from([*range(1, len(whole)), len(requests[0])])))
    places = [0, *sorted(cuts), len(whole)]
    pieces = [whole[start:end] for start, end in pairwise(places)]
    assert client.says(*pieces) == expected


@pytest.mark.parametrize(
    "request_",
    [
        infer(7, b"authorization: Bearer 0123456789abcdef"),
        infer(7, b"cookie: a=b"),
        infer(7, b"x-request-id: 1"),
        infer(7, b"x-request-timeout-ms: 60000"),
        infer(7, b"accept: " + b"a" * 600),
        infer(7)
        .replace(b"HTTP/1.1", b"HTTP/1.0")
        .replace(b"host: here", b"connection: keep-alive"),
        infer(7, b"transfer-encoding: chunked").replace(b"content-length: ", b"x: "),
        infer(7).replace(b"host: here", b"accept: any"),
        infer(7, b"connection: close"),
        infer(7) * 2,
    ],
)
def test_heads_that_are_not_kept(server: Server, client: Client, request_: bytes) -> None:
    client.says(request_)
    assert not server.known


def test_a_request_whose_body_has_another_length(server: Server, client: Client) -> None:
    known = infer(7)
    client.says(known)
    assert [*server.known] == [known[: known.index(END) + 4]]
    answer = client.says(known + known[:20])
    assert answer.count(b" 200 ") == 1
    assert client.says(known[20:]) == answer
    assert client.says(known[:-1]) == b""
    assert client.says(known[-1:]) == answer


def test_heads_have_an_end(server: Server, client: Client) -> None:
    for number in range(2500):
        client.says(infer(7, b"user-agent: %d" % number))
    assert 0 < len(server.known) < 2500


def test_guards_and_observers_see_what_is_known(server: Server, client: Client) -> None:
    seen: list[Any] = []
    service = server.service
    service.guards.append(lambda request: seen.append(dict(request.headers)))
    service.observers.append(lambda request, response, _: seen.append((request.path, response)))
    try:
        answers = {client.says(infer(7)) for _ in range(3)}
    finally:
        service.guards.pop()
        service.observers.pop()
    assert len(answers) == 1
    assert len(seen) == 6
    assert seen[0] == seen[2] == seen[4]
    assert {b"host", b"content-length"} == seen[0].keys()
