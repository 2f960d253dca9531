"""HTTP/2 on the port of HTTP/1.1: the same answers, bounds, and blocks of headers."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack

import hpack
import pytest
from hpack.huffman_table import decode_huffman
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.wire.hpack import STATIC, HeaderDecoder, HpackError, encoded, huffman
from runtime.http.wire.http2 import PREFACE
from runtime.http.wire.http2_carrier import (
    MOST_IDLE_FRAMES,
    STREAMS,
    Fault,
    FrameFlag,
    FrameKind,
    frame,
)
from runtime.http.wire.http2_heads import HeaderBlocks
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import House
from tests.runtime.http.frames import OPENED, SERVICE, head, message, talk
from tests.runtime.plans import shift

GET = head("GET", "/v2")
POST = head("POST", "/predict/iris")
ROW = b"[1.5, 2.0, 3.0, 4.0]"
MANY = MOST_IDLE_FRAMES + 2


def number(value: int) -> bytes:
    return struct.pack(">I", value)


# --- the same answers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        *(("GET", f"/v2{path}", b"") for path in ("", "/health/live", "/models/iris")),
        *(("GET", path, b"") for path in ("/openapi.json", "/nowhere?at=all")),
        ("DELETE", "/v2", b""),
        ("POST", "/predict/iris", ROW),
        ("POST", "/predict/iris", b"[" + b",".join([ROW] * 2000) + b"]"),
        ("POST", "/predict/iris", b"[1"),
        ("POST", "/predict/iris", b" " * (2 << 20)),
        ("POST", "/v2/models/nobody/infer", b"{}"),
    ],
)
def test_every_request_is_answered_as_over_http_1(
    house: House, method: str, path: str, body: bytes
) -> None:
    usual = house.client.ask(method, path, body)
    with talk(house.server.port) as one:
        heard = one.ask(head(method, path), body)
        again = one.ask(head(method, path), body) if len(body) < 1 << 20 else heard
    assert heard.headers[":status"] == str(usual.status)
    assert heard.body == again.body == usual.body
    assert heard.headers["content-type"] == usual.headers["content-type"]
    assert heard.headers["content-length"] == str(len(usual.body))
    assert heard.headers.get("allow") == usual.headers.get("allow")


def test_head_has_no_body_and_trailers_mean_nothing(house: House) -> None:
    with talk(house.server.port) as one:
        heard = one.ask(head("HEAD", "/v2"))
        assert (heard.body, int(heard.headers["content-length"]) > 50) == (b"", True)
        stream = one.begin(POST)
        one.say(frame(FrameKind.DATA, FrameFlag.PADDED, stream, b"\2" + ROW + b"\0\0"))
        one.say(
            frame(
                FrameKind.HEADERS,
                FrameFlag.END_HEADERS | FrameFlag.END_STREAM,
                stream,
                encoded([("x-sum", "1")]),
            )
        )
        assert json.loads(one.hear(stream).body)["label"]


def test_the_preface_may_come_in_pieces_and_headers_in_many_frames(house: House) -> None:
    with house.client.raw() as slow:
        for at in range(len(PREFACE)):
            slow.sendall(PREFACE[at : at + 1])
            time.sleep(0.002)
        slow.sendall(frame(FrameKind.SETTINGS, 0, 0))
        assert slow.recv(9)[3] == FrameKind.SETTINGS
    with talk(house.server.port) as one:
        pieces = [GET[at : at + 7] for at in range(0, len(GET), 7)]
        one.say(
            frame(
                FrameKind.HEADERS,
                FrameFlag.PRIORITIZED | FrameFlag.END_STREAM,
                1,
                bytes(5) + pieces[0],
            )
        )
        one.say(*(frame(FrameKind.CONTINUATION, 0, 1, each) for each in pieces[1:-1]))
        one.say(frame(FrameKind.CONTINUATION, FrameFlag.END_HEADERS, 1, pieces[-1]))
        assert one.hear(1).headers[":status"] == "200"


def test_answers_wait_for_windows(house: House) -> None:
    """The stream's window is opened by bytes, then that of the connection."""
    whole = house.client.get("/openapi.json").body
    with talk(house.server.port, [(4, 10)]) as one:
        stream = one.begin(head("GET", "/openapi.json"), last=True)
        assert one.until(FrameKind.DATA, stream).payload == whole[:10]
        one.say(frame(FrameKind.WINDOW_UPDATE, 0, stream, number(7)))
        assert one.until(FrameKind.DATA, stream).payload == whole[10:17]
        one.say(frame(FrameKind.SETTINGS, 0, 0, struct.pack(">HI", 4, 100)))
        assert one.until(FrameKind.DATA, stream).payload == whole[17:107]
        one.say(OPENED, frame(FrameKind.WINDOW_UPDATE, 0, stream, number(1 << 30)))
        assert one.hear(stream).body == whole[107:]


def test_what_is_cancelled_is_not_answered(house: House) -> None:
    with talk(house.server.port, [(4, 0)]) as one:
        stream = one.begin(GET, last=True)
        one.until(FrameKind.HEADERS, stream)
        one.say(
            frame(FrameKind.RST_STREAM, 0, stream, number(8)),
            frame(FrameKind.WINDOW_UPDATE, 0, stream, number(9)),
        )
        one.say(frame(FrameKind.PING, 0, 0, b"12345678"))
        assert [each.kind for each in [one.until(FrameKind.PING)]] == [FrameKind.PING]


def test_requests_of_one_connection_overtake_each_other(house: House) -> None:
    """One whose body has not come does not hold up those after it."""
    with talk(house.server.port) as one:
        first = one.begin(POST)
        assert one.ask(GET).headers[":status"] == "200"
        one.say(frame(FrameKind.DATA, FrameFlag.END_STREAM, first, ROW))
        assert json.loads(one.hear(first).body)["label"]


# --- bounds --------------------------------------------------------------------------------------

OPEN = frame(FrameKind.HEADERS, FrameFlag.END_HEADERS, 1, POST)
#: Frames of a client, and the error that it gets.
HOSTILE: dict[str, tuple[bytes, int]] = {
    "a stream with an even number": (frame(FrameKind.HEADERS, 4, 2, GET), Fault.PROTOCOL),
    "data of no stream": (frame(FrameKind.DATA, 0, 1, b"x"), Fault.PROTOCOL),
    "data of the connection": (frame(FrameKind.DATA, 0, 0, b"x"), Fault.PROTOCOL),
    "data after the end": (
        frame(FrameKind.SETTINGS, 0, 0, struct.pack(">HI", 4, 0))
        + frame(FrameKind.HEADERS, 5, 1, GET)
        + frame(FrameKind.DATA, 0, 1, b"x"),
        Fault.STREAM_CLOSED,
    ),
    "a frame that is too large": (frame(FrameKind.DATA, 0, 1, bytes(20_000)), Fault.FRAME_SIZE),
    "a ping of four bytes": (frame(FrameKind.PING, 0, 0, bytes(4)), Fault.FRAME_SIZE),
    "half a setting": (frame(FrameKind.SETTINGS, 0, 0, bytes(5)), Fault.FRAME_SIZE),
    "a window beyond all": (
        frame(FrameKind.SETTINGS, 0, 0, struct.pack(">HI", 4, 1 << 31)),
        Fault.FLOW_CONTROL,
    ),
    "a frame size below all": (
        frame(FrameKind.SETTINGS, 0, 0, struct.pack(">HI", 5, 1)),
        Fault.PROTOCOL,
    ),
    "a window that grows by 0": (frame(FrameKind.WINDOW_UPDATE, 0, 0, number(0)), Fault.PROTOCOL),
    "a window that overflows": (
        OPEN + frame(FrameKind.WINDOW_UPDATE, 0, 1, number((1 << 31) - 1)),
        Fault.FLOW_CONTROL,
    ),
    "a priority of the connection": (frame(FrameKind.PRIORITY, 0, 0, bytes(5)), Fault.PROTOCOL),
    "a push": (frame(FrameKind.PUSH_PROMISE, 4, 1, bytes(4)), Fault.PROTOCOL),
    "padding longer than its frame": (
        OPEN + frame(FrameKind.DATA, FrameFlag.PADDED, 1, b"\5abc"),
        Fault.PROTOCOL,
    ),
    "a block that goes on without a beginning": (
        frame(FrameKind.CONTINUATION, 4, 1, GET),
        Fault.PROTOCOL,
    ),
    "a frame within a block": (
        frame(FrameKind.HEADERS, 0, 1, GET) + frame(FrameKind.PING, 0, 0, bytes(8)),
        Fault.PROTOCOL,
    ),
    "another stream within a block": (
        frame(FrameKind.HEADERS, 0, 1, GET) + frame(FrameKind.CONTINUATION, 4, 3, GET),
        Fault.PROTOCOL,
    ),
    "no HPACK": (frame(FrameKind.HEADERS, 5, 1, b"\xff\xff\xff\xff\xff\xff"), Fault.COMPRESSION),
    "a byte for each of many headers": (
        frame(FrameKind.HEADERS, 5, 1, GET + b"\x90" * 8000),
        Fault.COMPRESSION,
    ),
    "no such entry": (frame(FrameKind.HEADERS, 5, 1, b"\xc0"), Fault.COMPRESSION),
    "a large table": (frame(FrameKind.HEADERS, 5, 1, b"\x3f\xff\xff\x01"), Fault.COMPRESSION),
    "no path": (frame(FrameKind.HEADERS, 5, 1, encoded([(":method", "GET")])), Fault.PROTOCOL),
    "a header of HTTP/1.1": (
        frame(FrameKind.HEADERS, 5, 1, GET + encoded([("connection", "close")])),
        Fault.PROTOCOL,
    ),
    "a line break in a header": (
        frame(FrameKind.HEADERS, 5, 1, GET + encoded([("x", "a\r\nb: c")])),
        Fault.PROTOCOL,
    ),
    "a pseudo-header at the end": (
        frame(FrameKind.HEADERS, 5, 1, GET + encoded([("x", "y"), (":path", "/")])),
        Fault.PROTOCOL,
    ),
    "rapid reset": (
        b"".join(
            frame(FrameKind.HEADERS, 4, 2 * n + 1, POST)
            + frame(FrameKind.RST_STREAM, 0, 2 * n + 1, number(8))
            for n in range(MANY)
        ),
        Fault.ENHANCE_YOUR_CALM,
    ),
    "a flood of pings": (frame(FrameKind.PING, 0, 0, bytes(8)) * MANY, Fault.ENHANCE_YOUR_CALM),
    "a flood of settings": (frame(FrameKind.SETTINGS, 0, 0) * MANY, Fault.ENHANCE_YOUR_CALM),
    "a flood of empty data": (OPEN + frame(FrameKind.DATA, 0, 1) * MANY, Fault.ENHANCE_YOUR_CALM),
    "a flood of windows": (
        frame(FrameKind.WINDOW_UPDATE, 0, 0, number(1)) * MANY,
        Fault.ENHANCE_YOUR_CALM,
    ),
    "a flood of continuations": (
        frame(FrameKind.HEADERS, 0, 1, GET) + frame(FrameKind.CONTINUATION, 0, 1) * MANY,
        Fault.ENHANCE_YOUR_CALM,
    ),
    "endless headers": (
        frame(FrameKind.HEADERS, 0, 1, GET) + frame(FrameKind.CONTINUATION, 0, 1, bytes(8000)) * 3,
        Fault.ENHANCE_YOUR_CALM,
    ),
    "too many streams": (
        b"".join(frame(FrameKind.HEADERS, 4, 2 * n + 1, POST) for n in range(STREAMS + 1)),
        Fault.REFUSED_STREAM,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_frames_end_their_stream_or_connection(house: House, name: str) -> None:
    said, error = HOSTILE[name]
    with talk(house.server.port) as one:
        one.say(said)
        assert one.fault() == error
    assert house.client.get("/v2/health/live").status == 200


def test_no_frame_comes_before_the_settings(house: House) -> None:
    with house.client.raw() as one, one.makefile("rb") as heard:
        one.sendall(PREFACE + frame(FrameKind.PING, 0, 0, bytes(8)))
        assert heard.read().endswith(b"the first frame is not SETTINGS")


def test_headers_beyond_the_limit_are_431_and_the_connection_goes_on(house: House) -> None:
    with talk(house.server.port) as one:
        assert one.ask(GET + encoded([("x", "y" * 8100)])).headers[":status"] == "431"
        assert one.ask(GET).headers[":status"] == "200"


def test_bodies_of_many_streams_are_bounded_and_all_are_answered(house: House) -> None:
    """Together they are beyond the limit of one body: they are read one after the other."""
    row = b" " * 200_000 + ROW
    with talk(house.server.port) as one:
        streams = [one.begin(POST) for _ in range(16)]
        for at in range(0, len(row), 16_000):
            for stream in streams:
                end = FrameFlag.END_STREAM if at + 16_000 >= len(row) else 0
                one.say(frame(FrameKind.DATA, end, stream, row[at : at + 16_000]))
        answers = [one.until(FrameKind.HEADERS, stream).flags for stream in streams]
        assert answers == [FrameFlag.END_HEADERS] * 16


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    """A server that waits for nobody."""
    with Runtime(executors=1) as runtime:
        runtime.register("shift", shift(1.0))
        settings = ServerSettings(
            port=0,
            max_unread=0.0,
            header_seconds=0.1,
            body_seconds=0.1,
            body_rate=1 << 30,
            idle_seconds=0.5,
            write_seconds=0.1,
        )
        with Server(runtime, settings) as server:
            yield server


def test_every_wait_for_a_client_ends(hasty: Server) -> None:
    call = {"content-type": "application/grpc"}
    with ExitStack() as stack:
        made = [stack.enter_context(talk(hasty.port, [(4, 0)])) for _ in range(7)]
        silent, half, body, unread, partial, stream, pings = made
        half.say(frame(FrameKind.HEADERS, 0, 1, GET))
        body.say(frame(FrameKind.HEADERS, FrameFlag.END_HEADERS, 1, head("POST", "/predict/shift")))
        unread.say(frame(FrameKind.HEADERS, FrameFlag.END_HEADERS | FrameFlag.END_STREAM, 1, GET))
        partial.say(
            frame(FrameKind.HEADERS, FrameFlag.END_HEADERS, 1, POST),
            frame(FrameKind.DATA, 0, 1, bytes(100))[:50],
        )
        stream.begin(head("POST", SERVICE + "ModelStreamInfer", call))
        watch = head("POST", "/grpc.health.v1.Health/Watch", call)
        pings.say(frame(FrameKind.SETTINGS, 0, 0, struct.pack(">HI", 4, 1000)))
        pings.begin(watch)
        pings.say(frame(FrameKind.DATA, FrameFlag.END_STREAM, 1, message(b"")))
        assert unread.fault() == 8  # Fault.CANCEL
        assert half.fault() == Fault.ENHANCE_YOUR_CALM
        assert partial.fault() in {Fault.ENHANCE_YOUR_CALM, 0}
        assert body.until(FrameKind.HEADERS, 1).payload.count(b"408") == 1
        assert stream.hear(1).status == "4"
        assert silent.until(FrameKind.GOAWAY).payload[4:8] == bytes(4)
        assert [*pings.frames()][-1].kind == FrameKind.PING  # nobody answers: it has gone


def test_a_server_that_ends_tells_its_clients() -> None:
    """Streams that are under way are answered, those that could go on for ever are ended."""
    with Runtime(executors=1) as runtime:
        runtime.register("shift", shift(1.0))
        server = Server(runtime, ServerSettings(port=0, max_unread=0.0)).start()
        with talk(server.port) as one, talk(server.port) as idle:
            assert idle.ask(GET).headers[":status"] == "200"
            call = {"content-type": "application/grpc"}
            watched = one.begin(head("POST", "/grpc.health.v1.Health/Watch", call))
            one.say(frame(FrameKind.DATA, FrameFlag.END_STREAM, watched, message(b"")))
            assert one.hear(watched, 1).messages == [b"\x08\x01"]
            late = one.begin(head("POST", "/predict/shift"))
            began = time.monotonic()
            server.stop(timeout=0.0)
            assert one.until(FrameKind.GOAWAY).payload[:4] == number((1 << 31) - 1)
            one.say(frame(FrameKind.DATA, FrameFlag.END_STREAM, late, ROW))
            assert b"[2.5,3.0,4.0,5.0]" in one.hear(late).body
            assert [each.kind for each in idle.frames()][-1:] == [FrameKind.GOAWAY]
            server.stop()
            assert time.monotonic() - began < 20


def test_an_upgrade_in_the_middle_of_http_1_is_refused(house: House) -> None:
    """After the preface a client goes on in HTTP/2, or is sent away."""
    with house.client.raw() as one, one.makefile("rb") as heard:
        one.sendall(PREFACE + b"GET /v2 HTTP/1.1\r\nhost: here\r\n\r\n")
        assert heard.read(9)[3] == FrameKind.SETTINGS
        assert b"GOAWAY" not in heard.read()  # it ends
    assert Client(house.server.port).get("/v2").status == 200


NAMES = st.sampled_from([b"a", b"user-agent", b"x-long", b"cookie", b"grpc-timeout"])
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=40) | st.just(b"v" * 1500)), max_size=6)
#: Fields, packed by Huffman or not, and the size of the table before it if that changes.
BLOCKS = st.lists(st.tuples(FIELDS, st.booleans(), st.none() | st.integers(0, 4096)), max_size=12)
HEAD = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/v2")]


def test_the_static_table_is_that_of_the_library() -> None:
    assert STATIC[1:] == tuple(hpack.table.HeaderTable.STATIC_TABLE)


@settings(max_examples=50)
@given(BLOCKS)
def test_blocks_of_a_connection_are_decoded_as_they_were_meant(
    blocks: list[tuple[list[tuple[bytes, bytes]], bool, int | None]],
) -> None:
    encoder, decoder = hpack.Encoder(), HeaderDecoder()
    for fields, packed, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        assert decoder.decode(encoder.encode(fields, huffman=packed), 1 << 20) == fields


@settings(max_examples=50)
@given(st.lists(st.sampled_from([b"1", b"22", b"a" * 1900, b"b" * 1900, b"c" * 1900]), max_size=25))
def test_remembered_heads_are_those_that_a_decoder_finds(values: list[bytes]) -> None:
    """Entries of the table come, and drive others out, so equal bytes mean other headers."""
    encoder, blocks = hpack.Encoder(), HeaderBlocks(1 << 16, lambda path: (path.decode(), ""))
    for value in values:
        head = blocks.read(encoder.encode([*HEAD, (b"x", value)]))
        assert head is not None
        assert (head.method, head.path, head.headers) == ("GET", "/v2", {b"x": value})


@given(st.binary(max_size=12))
def test_huffman_codes_are_read_and_refused_as_by_the_library(data: bytes) -> None:
    try:
        expected = decode_huffman(data)
    except hpack.HPACKDecodingError:
        with pytest.raises(HpackError):
            huffman(data)
    else:
        assert huffman(data) == expected


@given(st.binary(max_size=30))
def test_any_bytes_are_a_block_for_both_or_for_none(data: bytes) -> None:
    library = hpack.Decoder()
    try:
        expected = library.decode(data, raw=True)
    except hpack.HPACKError:
        with pytest.raises(HpackError):
            HeaderDecoder().decode(data, 1 << 20)
    else:
        assert HeaderDecoder().decode(data, 1 << 20) == expected


@given(FIELDS)
def test_blocks_of_responses_are_read_by_the_library(fields: list[tuple[bytes, bytes]]) -> None:
    told = [(name.decode(), value.decode("latin-1")) for name, value in fields]
    assert hpack.Decoder().decode(encoded(told), raw=True) == fields
