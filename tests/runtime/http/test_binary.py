"""The binary tensor extension: raw tensors in and out, bodies that lie about them, and Arrow."""

from __future__ import annotations

import gzip
import json
import struct
import threading
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.http import service
from runtime.http.codec import codec_binary
from runtime.http.codec.codec_arrow import ARROW
from runtime.http.codec.tensors import DTYPES
from runtime.http.wire import compression
from runtime.http.wire.messages import Request
from runtime.http.wire.problems import HttpError
from tests.runtime.http.client import Reply
from tests.runtime.http.conftest import WIDTH, House, outputs, tensor

LENGTH = "Inference-Header-Content-Length"


def packed(inputs: list[dict[str, Any]], *raw: bytes, **more: Any) -> tuple[bytes, dict[str, str]]:
    """A body with raw tensors, and its header."""
    head = json.dumps({"inputs": inputs, **more}).encode()
    return head + b"".join(raw), {LENGTH: str(len(head))}


def raw_tensor(name: str, datatype: str, shape: list[int], size: int | str) -> dict[str, Any]:
    known = {"binary_data_size": size}
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": known}


def unpacked(reply: Reply) -> dict[str, bytes]:
    """The raw tensors of an answer."""
    assert reply.status == 200, reply.body
    size = int(reply.headers[LENGTH.lower()])
    head, at, made = json.loads(reply.body[:size]), size, {}
    for each in head["outputs"]:
        end = at + each["parameters"]["binary_data_size"]
        made[each["name"]] = reply.body[at:end]
        at = end
    assert at == len(reply.body)
    return made


@pytest.mark.parametrize("rows", [1, 3, 2000])
@pytest.mark.parametrize("datatype", ["FP64", "FP32", "INT32", "UINT8", "FP16"])
def test_raw_tensors_go_in_and_out(house: House, rows: int, datatype: str) -> None:
    x = np.arange(rows * 4).reshape(rows, 4).astype(DTYPES[datatype])
    raw = x.tobytes()
    body, headers = packed(
        [raw_tensor("x", datatype, [rows, 4], len(raw))],
        raw,
        parameters={"binary_data_output": True},
        id="é",
    )
    made = unpacked(house.client.post("/v2/models/shift/infer", body, headers))
    dtype = np.dtype(np.float32 if datatype == "FP32" else np.float64)
    expected = x.astype(dtype) + np.ones(1, dtype) * 2
    np.testing.assert_array_equal(np.frombuffer(made["moved"], dtype).reshape(rows, 4), expected)
    np.testing.assert_array_equal(np.frombuffer(made["top"], dtype), expected.max(axis=1))


def test_json_and_raw_tensors_mix(house: House) -> None:
    city = b"".join(struct.pack("<I", len(each)) + each for each in (b"Oslo", "Łódź".encode()))
    inputs = [
        raw_tensor("city", "BYTES", [2], len(city)),
        tensor("age", "FP64", [2], [1, 2]),
        raw_tensor("income", "INT64", [2], 16),
    ]
    wanted = [{"name": "city", "parameters": {"binary_data": True}}, {"name": "both"}]
    body, headers = packed(inputs, city, np.array([3, 4]).tobytes(), outputs=wanted)
    reply = house.client.post("/v2/models/people/infer", body, headers)
    size = int(reply.headers[LENGTH.lower()])
    head = json.loads(reply.body[:size])
    assert reply.body[size:] == city
    assert head["outputs"][1]["data"] == [2.0, 6.0, 4.0, 8.0]
    assert reply.headers["content-type"] == "application/octet-stream"


def test_bool_is_one_byte(house: House) -> None:
    body, headers = packed([raw_tensor("x", "BOOL", [1, 4], 4)], b"\x00\x01\x02\xff")
    made = outputs(house.client.post("/v2/models/shift/infer", body, headers).json)
    assert made["moved"]["data"] == [2.0, 3.0, 3.0, 3.0]


def test_a_body_may_be_the_one_input(house: House) -> None:
    x = np.arange(8.0)
    reply = house.client.post("/v2/models/shift/infer", x.tobytes(), {LENGTH: "0"})
    assert outputs(reply.json)["top"]["data"] == [5.0, 9.0]
    text = b"word001"
    raw = struct.pack("<I", len(text)) + text
    assert house.client.post("/v2/models/text/infer", raw, {LENGTH: "0"}).status == 200
    for model, body in [
        ("shift", x.tobytes()[:-1]),
        ("shift", b""),
        ("people", b"1234"),
        ("text", b"1"),
    ]:
        assert house.client.post(f"/v2/models/{model}/infer", body, {LENGTH: "0"}).status == 400


ROW = np.arange(4.0).tobytes()


@pytest.mark.parametrize(
    ("spec", "raw", "length"),
    [
        (raw_tensor("x", "FP64", [1, 4], 32), ROW[:-1], None),
        (raw_tensor("x", "FP64", [1, 4], 32), ROW + b"x", None),
        (raw_tensor("x", "FP64", [1, 4], 24), ROW[:24], None),
        *((raw_tensor("x", "FP64", at, 32), ROW, None) for at in ([2, 4], [1 << 40] * 2, [1, -4])),
        (raw_tensor("x", "FP64", [1, 4], -1), ROW, None),
        (raw_tensor("x", "FP64", [1, 4], "32"), ROW, None),
        (raw_tensor("x", "NONE", [1, 4], 32), ROW, None),
        *(
            (raw_tensor("x", "FP64", [1, 4], 32), ROW, size)
            for size in ("9999", "-1", "10", "twelve", "9" * 30)
        ),
        (raw_tensor("x", "BYTES", [1], 6), b"\x04\x00\x00\x00ab", None),
        (raw_tensor("x", "BYTES", [1], 3), b"\x04\x00\x00", None),
        (raw_tensor("x", "BYTES", [2], 5), b"\x01\x00\x00\x00a", None),
        (raw_tensor("x", "BYTES", [1], 5), b"\x01\x00\x00\x00\xff", None),
        (raw_tensor("x", "BYTES", [1], 4), b"\xff\xff\xff\xff", None),
    ],
)
def test_bodies_that_lie_are_refused(
    house: House, spec: dict[str, Any], raw: bytes, length: str | None
) -> None:
    body, headers = packed([spec], raw)
    headers = {LENGTH: length} if length else headers
    reply = house.client.post("/v2/models/shift/infer", body, headers)
    assert reply.status == 400, reply.body
    assert reply.error


@given(
    raw=st.binary(max_size=40),
    datatype=st.sampled_from([*DTYPES, "BYTES", "?"]),
    shape=st.lists(st.integers(-1, 6), max_size=3),
)
def test_any_bytes_are_an_array_or_an_error(raw: bytes, datatype: str, shape: list[int]) -> None:
    try:
        made = codec_binary.values(memoryview(raw), datatype, shape, "$")
    except HttpError:
        return  # which is what clients are told
    assert made.shape == tuple(shape)


@given(st.lists(st.none() | st.text(max_size=8)))
def test_texts_come_back(texts: list[str | None]) -> None:
    array = np.empty(len(texts), object)
    array[:] = texts
    raw = codec_binary.raw_values(array, "BYTES")
    made = codec_binary.values(memoryview(raw), "BYTES", [len(texts)], "$")
    assert made.tolist() == [text or "" for text in texts]


# --- packed bodies -------------------------------------------------------------------------------

BODY = json.dumps({"inputs": [tensor("x", "FP64", [1, 4], [1, 2, 3, 4])]}).encode()
RAW_DEFLATE = zlib.compressobj(wbits=-15)
PACKED = {
    "gzip": gzip.compress(BODY, mtime=0),
    "deflate": zlib.compress(BODY),
    "identity": BODY,
    "gzip, gzip": gzip.compress(gzip.compress(BODY, mtime=0), mtime=0),
    "x-gzip": gzip.compress(BODY[:40], mtime=0) + gzip.compress(BODY[40:], mtime=0),
}


@pytest.mark.parametrize("encoding", PACKED)
def test_packed_requests_are_read(house: House, encoding: str) -> None:
    headers = {"content-encoding": encoding}
    reply = house.client.post("/v2/models/shift/infer", PACKED[encoding], headers)
    assert outputs(reply.json)["top"]["data"] == [6.0]


def test_deflate_without_its_header_is_read(house: House) -> None:
    body = RAW_DEFLATE.compress(BODY) + RAW_DEFLATE.flush()
    reply = house.client.post("/v2/models/shift/infer", body, {"content-encoding": "deflate"})
    assert outputs(reply.json)["top"]["data"] == [6.0]


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        pytest.param("gzip", BODY, 400, id="not packed"),
        pytest.param("gzip", PACKED["gzip"][:-9], 400, id="cut"),
        pytest.param("gzip", PACKED["gzip"] + b"more", 400, id="something behind"),
        pytest.param("deflate", PACKED["deflate"] + b"more", 400, id="something behind deflate"),
        pytest.param("gzip", PACKED["gzip"] * 100, 400, id="too many members"),
        pytest.param("deflate", b"", 400, id="empty"),
        pytest.param("br", BODY, 415, id="unknown"),
        pytest.param("gzip", gzip.compress(bytes(2 << 20)), 413, id="too large"),
        pytest.param(
            "gzip, gzip", gzip.compress(gzip.compress(bytes(50 << 20))), 413, id="a bomb in a bomb"
        ),
        pytest.param("gzip, gzip, gzip, gzip", BODY, 415, id="too many layers"),
    ],
)
def test_packed_requests_that_are_wrong(
    house: House, encoding: str, body: bytes, status: int
) -> None:
    reply = house.client.post("/v2/models/shift/infer", body, {"content-encoding": encoding})
    assert reply.status == status
    assert reply.error


@pytest.mark.parametrize(
    ("accepted", "used"),
    [
        *(("gzip", "gzip"), ("deflate", "deflate"), ("gzip;q=0, deflate;q=0.5", "deflate")),
        *(("br, *", "gzip"), ("br", None), ("gzip;q=nonsense", None), ("", None)),
    ],
)
def test_large_answers_are_packed(house: House, accepted: str, used: str | None) -> None:
    body = {"inputs": [tensor("x", "FP64", [1000, 4], list(range(4000)))]}
    plain = house.client.post("/v2/models/shift/infer", body)
    reply = house.client.post("/v2/models/shift/infer", body, {"accept-encoding": accepted})
    assert reply.headers.get("content-encoding") == used
    made = zlib.decompress(reply.body, 47) if used else reply.body
    assert made == plain.body
    small = house.client.get("/v2", **{"accept-encoding": "gzip"})
    assert "content-encoding" not in small.headers


def test_what_unpacks_to_much_holds_up_nobody(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small body may be a thousand times as long, and is unpacked beside the event loop."""
    inside, threads = compression.unpack, list[str]()

    def noted(request: Request, most: int) -> None:
        threads.append(threading.current_thread().name)
        inside(request, most)

    monkeypatch.setattr(service, "unpack", noted)
    rows = np.random.default_rng(0).normal(size=(500, 4))
    for block in (rows[:1], rows):
        data = {"inputs": [tensor("x", "FP64", list(block.shape), block.tolist())]}
        body = gzip.compress(json.dumps(data).encode())
        known = {"Content-Encoding": "gzip"}
        reply = house.client.post("/v2/models/shift/infer", body, known)
        assert reply.status == 200
        assert outputs(reply.json)["top"]["data"] == (block.max(axis=1) + 2.0).tolist()
    bomb = house.client.post("/v2/models/shift/infer", gzip.compress(bytes(40 << 20)), known)
    assert bomb.status == 413
    here, *others = threads
    assert "pretzel-http-work" not in here
    assert all("pretzel-http-work" in each for each in others)
    assert len(others) == 2


def ask_raw(house: House, model: str, arrays: dict[str, Any]) -> dict[str, bytes]:
    """The raw answers to arrays of FP64 and of texts."""
    inputs, raw = [], []
    for name, array in arrays.items():
        numbers = array.dtype == np.float64
        raw.append(array.tobytes() if numbers else bytes(codec_binary.raw_values(array, "BYTES")))
        kind = "FP64" if numbers else "BYTES"
        inputs.append(raw_tensor(name, kind, list(array.shape), len(raw[-1])))
    body, headers = packed(inputs, *raw, parameters={"binary_data_output": True})
    return unpacked(house.client.post(f"/v2/models/{model}/infer", body, headers))


def labels(raw: bytes) -> list[str]:
    return codec_binary.values(memoryview(raw), "BYTES", [raw.count(b"\0\0\0")], "").tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("count", [1, 2, 50])
def test_what_fits_goes_to_the_entry(
    house: House, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raw rows, columns and a text are answered without a queue, by plans with labels, too."""
    entry = house.runtime.endpoints.find("iris").entry
    assert entry.inline_rows > 100, "labels are no reason to go another way"
    monkeypatch.delattr(type(house.server.service.answering), "answer")
    rows = house.rows[:count]
    answer = ask_raw(house, "iris", {"x": rows})
    assert labels(answer["label"]) == house.original.predict(rows).tolist()
    left, right = rows[:, :2].copy(), rows[:, 2:].copy()
    if count == 1:  # how many rows of several inputs are few is not known
        answer = ask_raw(house, "both", {"left": left, "right": right})
        assert answer["sum"] == (left + right).tobytes()
        text = np.array(["word001 word002"], object)
        scores = house.runtime.predict("text", text)["score"]
        assert ask_raw(house, "text", {"document": text})["score"] == scores.tobytes()


def test_columns_that_do_not_fit_are_told_so(house: House) -> None:
    """Columns of two lengths, and of other types, mean what they did: the entry sees none."""
    number = raw_tensor("age", "FP64", [2], 16)
    short = raw_tensor("income", "FP64", [1], 8)
    city = raw_tensor("city", "BYTES", [2], 10)
    body, headers = packed([number, short, city], bytes(24), b"\1\0\0\0a" * 2)
    reply = house.client.post("/v2/models/people/infer", body, headers)
    assert reply.status == 400
    assert "different lengths" in reply.error
    small = raw_tensor("income", "FP32", [2], 8)
    body, headers = packed([number, small, city], bytes(24), b"\1\0\0\0a" * 2)
    assert house.client.post("/v2/models/people/infer", body, headers).status == 200


X = np.random.default_rng(3).normal(size=(300, WIDTH))


def stream(*batches: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as out:
        for batch in batches:
            out.write_batch(batch)
    return bytes(sink.getvalue())


def lists(rows: Any) -> Any:
    return pa.record_batch({"x": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), WIDTH)})


def columns(rows: Any) -> Any:
    return pa.record_batch({f"c{number}": rows[:, number] for number in range(WIDTH)})


@pytest.mark.parametrize("headers", [{}, {"accept": "*/*"}, {"x-request-timeout-ms": "60000"}])
@pytest.mark.parametrize("count", [1, 3, 300])
@pytest.mark.parametrize("form", [lists, columns])
def test_answers_are_those_of_json(
    house: House, form: Any, count: int, headers: dict[str, str]
) -> None:
    want = house.client.post("/predict/iris", X[:count].tolist()).json
    body = stream(form(X[: count // 2 + 1]), form(X[count // 2 + 1 : count]))
    reply = house.client.post("/predict/iris", body, headers)
    assert (reply.status, reply.headers["content-type"]) == (200, ARROW)
    got = pa.ipc.open_stream(reply.body).read_all()
    assert got["label"].to_pylist() == [row["label"] for row in want]
    probabilities = [list(row["probabilities"].values()) for row in want]
    np.testing.assert_array_equal(got["probabilities"].to_pylist(), probabilities)


def test_a_client_that_accepts_json_only_gets_json(house: House) -> None:
    reply = house.client.post("/predict/iris", stream(lists(X[:2])), {"accept": "application/json"})
    assert reply.json == house.client.post("/predict/iris", X[:2].tolist()).json


def test_one_row_of_json_is_a_stream_of_one_row(house: House) -> None:
    reply = house.client.post("/predict/iris", X[0].tolist(), {"accept": ARROW})
    assert pa.ipc.open_stream(reply.body).read_all().num_rows == 1


def test_large_streams_are_read_beside_the_loop(house: House) -> None:
    many = np.resize(X, (20_000, WIDTH))
    got = pa.ipc.open_stream(
        house.client.post("/predict/iris", stream(lists(many))).body
    ).read_all()
    few = pa.ipc.open_stream(house.client.post("/predict/iris", stream(lists(X))).body).read_all()
    assert got["label"].to_pylist() == list(np.resize(few["label"].to_pylist(), 20_000))


WHOLE = stream(lists(X))
NAMELESS = stream(pa.record_batch({"éé": X[:, 0]})).replace("éé".encode(), b"\xff" * 4)
NOTHING = pa.record_batch({"x": pa.nulls(10_000_000)})


@pytest.mark.parametrize(
    ("body", "about"),
    [
        pytest.param(WHOLE[:500], "no Arrow stream", id="cut off"),
        pytest.param(WHOLE[:4] + b"x" * 400, "no Arrow stream", id="no metadata"),
        pytest.param(NAMELESS, "no Arrow stream", id="a name of no letters"),
        pytest.param(stream(NOTHING), "rows have no data", id="rows of nothing"),
        pytest.param(stream(lists(X), compression="zstd"), "cannot be compressed", id="zstd"),
        pytest.param(stream(pa.record_batch({"x": ["a"] * 9})), "numbers", id="text"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(
    house: House, body: bytes, about: str
) -> None:
    reply = house.client.post("/predict/iris", body)
    assert reply.status == 400
    assert about in reply.error


def test_mangled_streams_are_refused_or_answered(house: House) -> None:
    random = np.random.default_rng(5)
    words = pa.record_batch({"x": pa.array(["a", "bc", None] * 20).dictionary_encode()})
    for whole in (WHOLE[:1200], stream(words), stream(columns(X[:8]))):
        for _ in range(150):
            body = bytearray(whole)
            for at in random.integers(4, len(body), 4):
                body[at] = random.integers(256)
            assert house.client.post("/predict/iris", bytes(body)).status in {200, 400}
