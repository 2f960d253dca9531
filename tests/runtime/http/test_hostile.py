"""Clients that ask for much work with few bytes: they are refused, or others come between."""

from __future__ import annotations

import gzip
import json
import os
import threading
import zlib
from functools import partial
from typing import Any, ClassVar

import pytest

from runtime.http.answer import attributions, health
from runtime.http.wire import compression, connection, http2
from runtime.http.wire.http2_carrier import Fault, FrameKind, frame
from runtime.http.wire.loop_fairness import AT_ONCE, ReadTurns
from runtime.http.wire.messages import Request
from runtime.http.wire.problems import HttpError
from tests.runtime.http.conftest import House, tensor
from tests.runtime.http.frames import OPENED, head, talk

INFER = "/v2/models/shift/infer"
CHUNKED = b"POST %b HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n" % INFER.encode()
GET = b"GET /v2 HTTP/1.1\r\nhost: h\r\n"
DATA = os.urandom(1 << 20) + bytes(1 << 20)
ROW = {"inputs": [tensor("x", "FP64", [1, 4], [0.0] * 4)]}


@pytest.mark.parametrize(
    ("said", "statuses"),
    [
        (GET + b"a:\r\n" * 130 + b"\r\n", [431]),
        (GET + b"\r\n" + GET + b"a:\r\n" * 2000 + b"\r\n", [200, 431]),
        (GET + b"a:\r\n" * 100 + b"\r\n", [200]),
        (CHUNKED + b"1\r\n \r\n" * 300 + b"0\r\n\r\n", [413]),
        (CHUNKED + b"1\r\n \r\n" * 9000, [413]),
        (CHUNKED + b"10\r\n%b\r\n" % bytes(16) * 3000 + b"0\r\n\r\n", [400]),  # no JSON
        (CHUNKED + b"1\r\n1\r\n0\r\n" + b"a:\r\n" * 10_000, [431]),
    ],
)
def test_fields_and_chunks_are_limited(house: House, said: bytes, statuses: list[int]) -> None:
    made = house.client.say(said, count=len(statuses))
    assert [each.status for each in made] == statuses


def test_what_is_left_unread_and_fields_of_a_byte_are_limited(house: House) -> None:
    """The connection goes on: the table is as it was, and there is room when answers are read."""
    size = len(house.client.get("/openapi.json").body)
    with talk(house.server.port) as one:
        assert one.ask(head("GET", "/v2") + b"\x90" * 130).headers[":status"] == "431"
        one.say(frame(FrameKind.SETTINGS, 0, 0, b"\0\x04" + bytes(4)))
        for _ in range((1 << 20) // size + 3):
            last = one.begin(head("GET", "/openapi.json"), last=True)
        assert one.fault() == Fault.REFUSED_STREAM
        one.say(OPENED, frame(FrameKind.SETTINGS, 0, 0, b"\0\x04\x7f\xff\xff\xff"))
        assert len(one.hear(last - 6).body) == size


def test_others_have_their_turn(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """After some frames, and after some work on full reads."""
    handled, waits, frames, wait = [0], list[Any](), http2.Http2Connection._frames, ReadTurns.wait

    def counted(self: Any, data: bytes) -> int:
        handled.append(frames(self, data))
        return handled[-1]

    def waited(self: Any, loop: Any, go_on: Any) -> None:
        waits.append(go_on)
        wait(self, loop, go_on)

    monkeypatch.setattr(http2.Http2Connection, "_frames", counted)
    monkeypatch.setattr(ReadTurns, "wait", waited)
    monkeypatch.setattr(connection, "TURN_SECONDS", 0.0)
    with talk(house.server.port) as one:
        pings = [frame(FrameKind.PING, 0, 0, bytes([n]) * 8) for n in range(100)]
        one.say(*pings)
        assert [one.until(FrameKind.PING).payload[0] for _ in pings] == list(range(100))
    assert max(handled) <= len(http2.PREFACE) + AT_ONCE * len(pings[0])
    waits.clear()
    body = b" " * 400_000 + b"1"
    (made,) = house.client.say(CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    assert (made.status, bool(waits)) == (400, True)


def test_windows_that_change_often_are_looked_at_once_a_turn(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By streams that wait for them; the last size that a client sets is the one that counts."""
    pumped, pump = list[int](), http2.Http2Connection.pump

    def counted(self: Any) -> None:
        pumped.append(len(self._blocked))
        pump(self)

    monkeypatch.setattr(http2.Http2Connection, "pump", counted)
    wanted = house.client.get("/v2").body
    with talk(house.server.port) as one:
        one.say(frame(FrameKind.SETTINGS, 0, 0, b"\0\x04" + bytes(4)))
        streams = [one.begin(head("GET", "/v2"), last=True) for _ in range(50)]
        one.say(frame(FrameKind.PING, 0, 0, bytes(8)))
        one.until(FrameKind.PING)
        pumped.clear()
        wider = frame(FrameKind.WINDOW_UPDATE, 0, 0, b"\0\0\0\1")
        one.say(wider * (AT_ONCE - 1) + frame(FrameKind.PING, 0, 0, bytes(8)))
        one.until(FrameKind.PING)
        assert 50 in pumped
        assert len(pumped) < AT_ONCE // 2
        sizes = [b"\0\x04" + size.to_bytes(4, "big") for size in (70_000, 0, 9, 1 << 16)]
        one.say(frame(FrameKind.SETTINGS, 0, 0, b"".join(sizes)))
        assert one.hear(streams[-1]).body == wanted


@pytest.mark.parametrize("several", [False, True])
def test_rows_of_very_many_columns_are_refused(house: House, *, several: bool) -> None:
    """A row in JSON is answered on the event loop; each of its columns would be looked at."""
    row = {f"c{number}": 1.0 for number in range(5000)}
    reply = house.client.post("/predict/iris", [{"c": 1.0}, row] if several else row)
    assert (reply.status, "too many columns" in reply.error) == (400, True)
    assert "5000 columns" in reply.error
    few = {"age": 1.0, "income": 2.0, "city": "Oslo", **{f"c{n}": 1.0 for n in range(1000)}}
    assert house.client.post("/predict/people", few).status == 200


def test_many_connections_at_once_have_a_round_together(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that come later in a round of the loop are read in turns, and lose nothing."""
    over, waits, wait = ReadTurns.is_over, list[Any](), ReadTurns.wait

    def waited(self: Any, loop: Any, go_on: Any) -> None:
        waits.append(go_on)
        wait(self, loop, go_on)

    monkeypatch.setattr(ReadTurns, "wait", waited)
    monkeypatch.setattr(ReadTurns, "is_over", lambda self, loop, now: over(self, loop, now) or True)
    wanted = house.client.get("/v2").body
    with talk(house.server.port) as one:
        for _ in range(3):
            assert one.ask(head("GET", "/v2")).body == wanted
        heard = one.ask(head("POST", INFER), json.dumps(ROW).encode())
        assert heard.headers[":status"] == "200"
    assert len(waits) >= 5


def test_a_round_ends_with_its_time() -> None:
    class Loop:
        later: ClassVar[list[Any]] = []

        def call_soon(self, function: Any, *arguments: Any) -> None:
            self.later.append(partial(function, *arguments))

    turns, loop = ReadTurns(), Loop()
    known = [turns.is_over(loop, now) for now in (5.0, 5.001, 5.1)]  # type: ignore[arg-type]  # what it needs of one
    assert known == [False, False, True]
    (begin,) = loop.later
    begin()
    assert not turns.is_over(loop, 5.2)  # type: ignore[arg-type]  # as above


def test_who_was_sent_away_waits(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house.server.turns, "wary", frozenset({"127.0.0.1"}))
    monkeypatch.setattr(http2, "WARY_SECONDS", 1e9)
    with talk(house.server.port) as one:
        one.socket.settimeout(0.2)
        one.begin(head("GET", "/v2"), last=True)
        with pytest.raises(TimeoutError):
            one.until(FrameKind.HEADERS, 1)


def test_long_work_is_done_on_threads(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[str]()

    def noted(*_: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return b"{}"

    monkeypatch.setattr(health, "document", noted)
    monkeypatch.setattr(attributions, "_told", noted)
    monkeypatch.setattr(health, "_documents", {})
    assert {house.client.get("/openapi.json").body for _ in range(2)} == {b"{}"}
    house.client.post("/v2/models/iris/infer", {**ROW, "parameters": {"explain": True}})
    assert len(threads) == 2
    assert all("pretzel-http-work" in each for each in threads)


def test_spaces_are_not_tried_one_by_one(house: House) -> None:
    """It would take hours."""
    for rest in (b"[1]]" + b" " * 600_000 + b"x", b" " * 600_000 + b"1]"):
        assert house.client.post("/predict/iris", b"[" + rest).status == 400


def test_bodies_are_unpacked_in_pieces() -> None:
    def unpacked(name: bytes, packed: bytes) -> object:
        request = Request("POST", INFER, "", {b"content-encoding": name}, packed)
        compression.unpack(request, 1 << 30)
        return request.body

    assert unpacked(b"gzip", gzip.compress(DATA[:5]) + gzip.compress(DATA[5:])) == DATA
    assert unpacked(b"deflate", zlib.compress(DATA)[2:-4]) == DATA
    assert unpacked(b"gzip", gzip.compress(bytes(9 << 20))) == bytes(9 << 20)
    with pytest.raises(HttpError, match="a 100th at most"):
        unpacked(b"gzip", gzip.compress(bytes(17 << 20)))


def test_a_deadline_of_nothing_has_passed(house: House) -> None:
    assert not any(house.server.service.is_late(1e-6, each) for each in (b"0", b"-5", b"nan"))
    assert house.client.post(INFER, ROW, {"X-Request-Timeout-Ms": "0"}).status == 504
