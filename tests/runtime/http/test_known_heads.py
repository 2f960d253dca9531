"""Heads that came before are not parsed again, and mean the same: whatever pieces they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.wire.connection import Connection
from tests.runtime.http.test_connection import infer
from tests.runtime.plans import shift

Say = Callable[..., bytes]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Runtime(executors=1) as runtime:
        runtime.register("shift", shift(2.0), background=False)
        server = Server(runtime, ServerSettings(metrics=False))
        server.loop = Mock()
        yield server


@pytest.fixture
def say(server: Server) -> Say:
    server.known.clear()
    transport = Mock(plain=False, is_closing=lambda: False, get_extra_info=lambda _: None)
    connection = Connection(server, server.service)
    connection.connection_made(transport)

    def said(*pieces: bytes) -> bytes:
        transport.write.reset_mock()
        for piece in pieces:
            connection.get_buffer(0)[: len(piece)] = piece
            connection.buffer_updated(len(piece))
        return b"".join(call.args[0] for call in transport.write.call_args_list)

    return said


def test_the_parser_is_not_asked_again(
    server: Server, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(server.service, "guards", [lambda each: seen.append(dict(each.headers))])
    first, second = say(infer(5)), say(infer(6))
    assert first.count(b" 200 ") == second.count(b" 200 ") == 1
    monkeypatch.setattr(Connection, "on_headers_complete", Mock(side_effect=AssertionError))
    assert (say(infer(5)), say(infer(6))) == (first, second)
    assert seen == [{b"host": b"here", b"content-length": b"86"}] * 4


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.sampled_from([1, 7, 12]), min_size=1, max_size=4), st.data())
def test_pieces_of_requests(
    server: Server, say: Say, values: list[int], data: st.DataObject
) -> None:
    requests = [infer(value) for value in values]
    expected, whole = b"".join(map(say, requests)), b"".join(requests)
    cuts = data.draw(st.sets(st.sampled_from([*range(1, len(whole)), len(requests[0])])))
    pieces = [whole[start:end] for start, end in pairwise([0, *sorted(cuts), len(whole)])]
    server.known.clear()
    assert say(*pieces) == expected
    assert {head[:5] for head in server.known} <= {b"POST "}  # nothing of a body before it


@pytest.mark.parametrize(
    "asked",
    [
        infer(7, b"authorization: Bearer 0123456789abcdef"),
        infer(7, b"x-request-id: 1"),
        infer(7, b"accept: " + b"a" * 600),
        infer(7, b"connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0"),
        infer(7, b"transfer-encoding: chunked").replace(b"content-length: ", b"x: "),
        infer(7, b"connection: close"),
        infer(7) * 2,
    ],
)
def test_heads_that_are_not_kept(server: Server, say: Say, asked: bytes) -> None:
    say(asked)
    assert not server.known


def test_heads_have_an_end(server: Server, say: Say) -> None:
    for number in range(2500):
        say(infer(7, b"user-agent: %d" % number))
    assert 0 < len(server.known) < 2500
