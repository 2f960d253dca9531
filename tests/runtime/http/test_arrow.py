"""Streams of Arrow: types, options, and what is no stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime.http.codec.codec_arrow import ARROW
from tests.runtime.http.conftest import WIDTH, House

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
