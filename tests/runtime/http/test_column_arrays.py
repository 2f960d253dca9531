"""Large objects of columns are read array by array, and answered as small ones are."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flour.core.types import Category, Record, Scalar, Tokens, Type, Vector
from runtime.http.codec import array_pieces, column_arrays
from runtime.http.codec.column_arrays import column_pieces, outlined
from tests.runtime.http.conftest import House
from tests.runtime.http.test_array_pieces import COLUMNS, large

pytestmark = pytest.mark.usefixtures("native_readers")
PERSON = Record((("age", Scalar("float64")), ("income", Scalar("int64")), ("city", Category())))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
MARKS = st.sampled_from(["#0", "#1", ":[1]", '":[', "]", "é"])


@settings(max_examples=150, deadline=None)
@given(
    values=st.sampled_from([1, 5, 1000]),
    piece=st.sampled_from([1, 40]),
    rows=st.lists(
        st.tuples(FLOATS | st.none() | st.integers(), st.integers() | st.booleans(), MARKS),
        min_size=1,
    ),
    spaces=st.sampled_from([None, 1]),
    wrapped=st.booleans(),
)
def test_pieces_are_the_whole(
    values: int,
    piece: int,
    rows: list[tuple[Any, ...]],
    spaces: int | None,
    wrapped: bool,  # noqa: FBT001 (a case)
) -> None:
    columns = dict(zip(PERSON.names, map(list, zip(*rows, strict=True)), strict=True))
    body = json.dumps({"person": columns} if wrapped else columns, indent=spaces).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_pieces, "PIECE_BYTES", piece)
        patch.setattr(column_arrays, "PIECE_VALUES", values)
        found = column_pieces(outlined(body), {"person": PERSON})
        assert found is not None
        pieces = [each["person"] if wrapped else each for each in found.pieces]
    whole = {name: [v for each in pieces for v in each[name]] for name in PERSON.names}
    assert [None if v is None else float(v) for v in whole["age"]] == [
        None if v is None else float(v) for v in columns["age"]
    ]
    assert [whole[name] for name in ("income", "city")] == [columns["income"], columns["city"]]
    assert [*map(type, whole["income"])] == [*map(type, columns["income"])]
    assert len(pieces) == (len(rows) if values < 6 else -(-len(rows) // 333))


def test_columns_of_float64_are_arrays() -> None:
    inputs: dict[str, Type] = {"pair": Record((("a", Scalar("float64")), ("b", Scalar("float64"))))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_pieces, "PIECE_BYTES", 1)
        value = outlined(b'{"a": [1, 2.5], "b": [-0.0, 3e2]}')
    (piece,) = column_pieces(value, inputs).pieces  # type: ignore[union-attr]
    assert all(isinstance(each, np.ndarray) for each in piece.values())
    assert {name: each.tolist() for name, each in piece.items()} == {"a": [1, 2.5], "b": [0, 300]}


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (b"[[1.0]]", {"person": PERSON}),
        (b'{"age": [1.0], "income": 3}', {"person": PERSON}),
        (b'{"age": [1.0], "income": [1], "unread": [1, 2]}', {"person": PERSON}),
        (b'{"age": [], "income": []}', {"person": PERSON}),
        (b'{"age": [1.0], "city": "#0"}', {"person": PERSON}),
        (b'{"other": {"age": [1.0]}}', {"person": PERSON}),
        (b'{"x": [1.0, 2.0]}', {"x": Vector(2, "float64")}),
        (b'{"words": ["a", "b"]}', {"words": Tokens()}),
    ],
)
def test_what_may_be_no_columns_is_for_the_general_decoder(
    body: bytes, inputs: dict[str, Type]
) -> None:
    assert column_pieces(outlined(body), inputs) is None


def rows_of(house: House, path: str, columns: dict[str, list[Any]], step: int) -> list[Any]:
    """The answers to columns that are sent a few rows at a time."""
    count = len(next(iter(columns.values())))
    return [
        row
        for at in range(0, count, step)
        for row in house.client.post(
            path, {name: values[at : at + step] for name, values in columns.items()}
        ).json
    ]


def test_columns_are_answered_as_they_are_in_small_bodies(house: House) -> None:
    want = rows_of(house, "/predict/people", COLUMNS, 1000)
    assert house.client.post("/predict/people", large(COLUMNS)).json == want
    header = {"x-request-timeout-ms": "1"}
    assert house.client.post("/predict/people", large(COLUMNS), header).status == 504


def test_rows_of_vectors_under_their_names(house: House) -> None:
    values = np.random.default_rng(0).normal(size=(2, 8000, 2))
    named = {"left": values[0].tolist(), "right": values[1].tolist()}
    want = rows_of(house, "/predict/both", named, 1000)
    assert house.client.post("/predict/both", large(named)).json == want
    assert want[0] == {"sum": values.sum(axis=0)[0].tolist()}


def test_columns_of_different_lengths_are_refused(house: House) -> None:
    short = {**COLUMNS, "age": COLUMNS["age"][:-1]}
    reply = house.client.post("/predict/people", large(short))
    assert reply.status == 400
    assert "different lengths" in reply.error
    assert "7999" in reply.error


def test_instances_are_no_columns(house: House) -> None:
    reply = house.client.post(
        "/v1/models/people:predict", large({"instances": COLUMNS["city"] * 2})
    )
    assert reply.status == 400
