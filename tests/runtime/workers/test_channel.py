"""Questions and answers over a pair of sockets: matched, failed when the other end goes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flour.core.errors import ParameterError
from runtime.errors import ChannelClosed
from runtime.workers.channel import Channel, RemoteError
from runtime.workers.mirror import WorkerPeers
from runtime.workers.supervisor import gathered

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abé"), inner, max_size=4),
    max_leaves=10,
)


@contextmanager
def pair(handle: Callable[[str, Any], Any]) -> Iterator[tuple[Channel, Channel, threading.Event]]:
    ours, theirs = socket.socketpair()
    gone = threading.Event()
    asking = Channel(ours, lambda kind, body: [kind, body], gone.set)
    answering = Channel(theirs, handle, lambda: None)
    asking.start("test-a")
    answering.start("test-b")
    try:
        yield asking, answering, gone
    finally:
        asking.close()
        answering.close()
        assert gone.wait(60)


@settings(max_examples=20, deadline=None)
@given(bodies=st.lists(values, max_size=8))
def test_answers_are_those_to_their_questions(bodies: list[Any]) -> None:
    with pair(lambda kind, body: {"kind": kind, "body": body}) as (one, other, _):
        asked = [one.ask(f"k{number}", body) for number, body in enumerate(bodies)]
        for number, body in enumerate(bodies):
            assert asked[number].result(60) == {"kind": f"k{number}", "body": body}
        assert other.ask("back", 1).result(60) == ["back", 1]


def test_large_ones_both_ways_at_once() -> None:
    """Neither end waits for the other to read."""
    large = "x" * (4 << 20)
    with pair(lambda _kind, body: body) as (one, other, _):
        asked = [each.ask("k", large) for each in (one, other) for _ in range(4)]
        assert all(large in each.result(60) for each in asked)


def test_errors_come_with_all_they_say() -> None:
    def refuse(kind: str, _: object) -> object:
        if kind == "ours":
            raise ParameterError("no such thing", where="here", found="3", hint="try 4")
        raise RuntimeError("inner affairs of /etc/secret")

    with pair(refuse) as (one, _, _):
        with pytest.raises(RemoteError, match=r"no such thing") as caught:
            one.ask("ours").result(60)
        found = caught.value
        assert (found.kind, found.where, found.found, found.hint) == (
            *("ParameterError", "here", "3", "try 4"),
        )
        with pytest.raises(RemoteError) as hidden:
            one.ask("theirs").result(60)
        assert "secret" not in str(hidden.value)


def test_futures_fail_when_the_other_end_goes() -> None:
    never: Future[object] = Future()
    with pair(lambda _kind, _body: never) as (one, other, gone):
        waiting = one.ask("k")
        other.close()
        with pytest.raises(ChannelClosed):
            waiting.result(60)
        assert gone.wait(60)
        with pytest.raises(ChannelClosed):
            one.ask("k").result(60)


def test_rubbish_ends_the_channel_and_nothing_else() -> None:
    ours, theirs = socket.socketpair()
    gone = threading.Event()
    channel = Channel(ours, lambda _kind, _body: None, gone.set)
    channel.start("test")
    waiting = channel.ask("k")
    theirs.sendall(b"\xff" * 64)
    assert gone.wait(60)
    with pytest.raises(ChannelClosed):
        waiting.result(60)
    theirs.close()


# --- snapshots -----------------------------------------------------------------------------------


def test_snapshots_of_those_who_answer_in_time() -> None:
    slow: Future[Any] = Future()
    broken: Future[Any] = Future()
    broken.set_exception(ChannelClosed("gone"))
    quick: Future[Any] = Future()
    quick.set_result({"requests": 3})
    made = gathered({0: quick, 1: slow, 2: broken}, 0.1)
    assert made.result(60) == {"0": {"requests": 3}}
    slow.set_result({"requests": 4})  # too late, and no harm
    assert gathered({0: quick}, 5.0).result(60) == {"0": {"requests": 3}}
    assert gathered({}, 5.0).result(60) == {}


def test_peers_ask_through_the_channel() -> None:
    def handle(kind: str, body: Any) -> object:
        assert (kind, body) == ("snapshot", {"kind": "metrics", "seconds": 60.0})
        return {"1": {"requests": 7}}

    with pair(handle) as (one, _, _):
        peers = WorkerPeers(one, 0, 2)
        assert asyncio.run(peers.snapshot("metrics", 60.0)) == {1: {"requests": 7}}
        peers.offer("metrics", lambda: {"requests": 1})
        assert peers.made("metrics") == {"requests": 1}
    assert asyncio.run(peers.snapshot("metrics")) == {}
