"""Long arrays of JSON are cut between elements, and what is made of the pieces is the whole."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.answer import inference
from runtime.http.codec import array_pieces
from runtime.http.codec.array_pieces import LARGE, PIECE_BYTES, ArrayPieces
from runtime.http.codec.column_arrays import joined, outlined
from runtime.http.wire.problems import HttpError
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import House, filled, tensor
from tests.runtime.plans import documents

pytestmark = pytest.mark.usefixtures("native_readers")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a",\\[]{}é\n', max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=20,
)
ROWS = st.lists(st.lists(VALUES, max_size=4) | st.text('\\"[', max_size=9), min_size=1)


@settings(max_examples=150, deadline=None)
@given(
    size=st.sampled_from([1, 7, 40]),
    instances=st.booleans(),
    rows=ROWS,
    spaces=st.sampled_from([None, 1]),
)
def test_pieces_are_the_whole(size: int, instances: bool, rows: list[Any], spaces: Any) -> None:  # noqa: FBT001 (a case)
    body = json.dumps({"instances": rows} if instances else rows, indent=spaces).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_pieces, "PIECE_BYTES", size)
        value = outlined(body)
    found = value["instances"] if instances else value
    assert isinstance(found, ArrayPieces)
    assert found.has_rows
    pieces = [json.loads(piece) for piece in found]
    assert [row for piece in pieces for row in piece] == rows
    assert len(pieces) > 1 or len(rows) == 1 or size > 1


@pytest.mark.parametrize(
    "body",
    [
        *(b"[[1]", b'[["a]]', b"[[1]] 2", b'{"instances": [[1]]', b"", b'[{"a": 1]}'),
        b'{"a": [1}, "b": 2]',
    ],
)
def test_what_is_no_json_is_told(body: bytes) -> None:
    with pytest.raises(HttpError, match=r"the body is (no JSON|empty)"):
        outlined(body)


@pytest.mark.parametrize("text", ["\\u00000", "\0\0", "\0" + "0"])
def test_texts_like_marks_stay_texts(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_pieces, "PIECE_BYTES", 1)
    data = {"a": [1, 2], "b": text, "c": {"d": ["e"]}, text: 3}
    assert joined(outlined(json.dumps(data).encode())) == data


PEOPLE = [
    {"age": number % 90 + 0.5, "income": number, "city": f'city {number % 40} "[{"é" * 20}'}
    for number in range(8000)
]
COLUMNS = {name: [row[name] for row in PEOPLE] for name in PEOPLE[0]}
COLUMNS["unread"] = ["a column of another name"] * len(PEOPLE)


def large(data: object) -> bytes:
    body = json.dumps(data, ensure_ascii=False).encode()
    assert LARGE + PIECE_BYTES < len(body) < 1 << 20
    return body


def test_rows_as_objects_are_answered_as_they_are_in_small_bodies(house: House) -> None:
    want = [
        row
        for at in range(0, len(PEOPLE), 1000)
        for row in house.client.post("/predict/people", PEOPLE[at : at + 1000]).json
    ]
    assert house.client.post("/predict/people", large(PEOPLE)).json == want
    reply = house.client.post("/v1/models/people:predict", large({"instances": PEOPLE}))
    assert reply.json == {"predictions": want}
    header = {"x-request-timeout-ms": "60000"}
    assert house.client.post("/predict/people", large(PEOPLE), header).json == want
    late = house.client.post("/predict/people", large(PEOPLE), {"x-request-timeout-ms": "1"})
    assert late.status == 504


@pytest.mark.parametrize("together", [1, 499, 1024])
def test_texts_plain_and_in_tensors(
    house: House, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "DOCUMENTS", together)
    texts = documents(500, length=160)
    want = [house.client.post("/predict/text", text).json["score"] for text in texts]
    got = house.client.post("/predict/text", large(texts)).json
    assert [row["score"] for row in got] == want
    for shape in ([500], [500, 1]):
        data = texts if len(shape) == 1 else [[text] for text in texts]
        for flat in (texts, data):
            body = large({"inputs": [tensor("document", "BYTES", shape, flat)]})
            reply = house.client.post("/v2/models/text/infer", body)
            assert reply.json["outputs"][0]["data"] == [value for (value,) in want]


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("at", [3, 7999])
def test_a_mistake_is_told_with_the_number_of_its_row(
    house: House, at: int, *, by_columns: bool
) -> None:
    rows = [*PEOPLE]
    rows[at] = {**rows[at], "age": "old"}
    columns = {**COLUMNS, "age": [row["age"] for row in rows]}
    reply = house.client.post("/predict/people", large(columns if by_columns else rows))
    assert reply.status == 400
    assert f"$.age[{at}]" in reply.error


def test_one_row_of_many_words_is_one_row(house: House) -> None:
    text = " ".join(documents(500, length=160))
    assert house.client.post("/predict/text", large(text)).json["score"]


def test_many_rows_as_objects_hold_no_other_client_up() -> None:
    """Decoded in one piece, they keep the GIL for a third of the time."""
    rows = json.dumps(PEOPLE * 12, ensure_ascii=False).encode()
    with (
        Runtime(executors=1) as runtime,
        Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server,
    ):
        filled(runtime)
        client = Client(server.port)
        reply, took, waited = client.beside(partial(client.ask, "POST", "/predict/people", rows))
    assert reply.status == 200
    assert reply.body.count(b'"city"') == 12 * len(PEOPLE)
    assert waited < took / 5
