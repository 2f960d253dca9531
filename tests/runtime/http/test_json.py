"""The JSON rules: forms of data, exact numbers, what is missing, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.http.codec import codec_json
from runtime.http.wire.problems import HttpError
from tests.runtime.http.conftest import CLASSES, House, outputs, tensor

#: With places for the datatype and the last number.
INPUT = b'{"name": "x", "shape": [1, 4], "datatype": "%b", "data": [1, 2, 3, %b]}'
FLAT = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_flat_and_nested_data_are_the_same(house: House) -> None:
    flat = house.infer([tensor("x", "FP64", [2, 4], FLAT)], "shift")
    nested = house.infer([tensor("x", "FP64", [2, 4], [FLAT[:4], FLAT[4:]])], "shift")
    assert flat == nested
    assert outputs(flat)["top"]["data"] == [6.0, 10.0]


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        *(([2, 4], FLAT[:7]), ([2, 4], [FLAT]), ([2, 4], [FLAT[:4], FLAT[4:7]]), ([8], FLAT)),
        *(([2, 4], [FLAT[:4], 5.0]), ([2, -4], FLAT), ([2, 4], [[[1]]]), ([1] * 9, [1])),
        *(([1 << 62, 1 << 62], []), ([2, 4], "text"), ([2, 4], {"0": 1}), ([2, 4], ["1"] * 8)),
        *(([2, 4], [True] * 8), ([2, 2], FLAT[:4]), ([], 1), ([], []), ([2.5, 4], FLAT)),
    ],
)
def test_shapes_and_data_have_to_agree(house: House, shape: Any, data: Any) -> None:
    body = {"inputs": [tensor("x", "FP64", shape, data)]}
    reply = house.client.post("/v2/models/shift/infer", body)
    assert reply.status == 400, reply.body
    assert reply.error


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"inputs": null}', b'{"inputs": []}'),
        *(b'{"inputs": [1]}', b'{"inputs": [{"name": "x"}]}'),
        b'{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP64"}]}',
        b'{"inputs": [{"name": 1, "shape": [1, 4], "datatype": "FP64", "data": [1, 2, 3, 4]}]}',
        *(b'{"inputs": [%b]}' % (INPUT % (each, b"4")) for each in (b"FP63", b"FP16")),
        *(b'{"inputs": [%b]}' % (INPUT % (b"FP64", each)) for each in (b"NaN, 5", b"1e999")),
        b'{"inputs": [%b}' % (INPUT % (b"FP64", b"NaN")),
        b'{"inputs": [%b]}' % (INPUT % (b"FP32", b"1e300")),
        b'{"inputs": [%b], "id": 7}' % (INPUT % (b"FP64", b"4")),
        b'{"inputs": ' + b"[" * 100_000,
        b'{"inputs": ' + b"[" * 100_000 + b"NaN",
        b'{"x": ' * 50_000,
    ],
)
def test_what_is_no_request_is_refused(house: House, body: bytes) -> None:
    reply = house.client.post("/v2/models/shift/infer", body)
    assert reply.status == 400, reply.body[:200]
    assert reply.error
    assert "Traceback" not in reply.error


def test_errors_say_where(house: House) -> None:
    data = [1.0, 2.0, "three", 4.0]
    body = {"inputs": [tensor("x", "FP64", [1, 4], data)]}
    error = house.client.post("/v2/models/shift/infer", body).error
    assert "$.inputs[0].data[2]" in error
    assert "str" in error


def test_whole_numbers_stay_exact(house: House) -> None:
    big = [2**63 - 1, -(2**63)]
    made = outputs(house.infer([tensor("count", "INT64", [1, 2], big)], "whole"))
    assert made["same"]["data"] == big
    for bad in [2**63, 10**400, 1.5, "1", None, True]:
        body = {"inputs": [tensor("count", "INT64", [1, 2], [1, bad])]}
        reply = house.client.post("/v2/models/whole/infer", body)
        assert reply.status == 400, (bad, reply.body)
    # What the model cannot hold as it is: refused too, not rounded.
    body = {"inputs": [tensor("count", "UINT64", [1, 2], [1, 2**64 - 1])]}
    assert house.client.post("/v2/models/whole/infer", body).status == 400


def test_whole_numbers_are_numbers(house: House) -> None:
    made = house.infer([tensor("x", "FP64", [1, 4], [1, 2, 3, 4])], "shift")
    assert outputs(made)["top"]["data"] == [6.0]
    for datatype in ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"]:
        same = house.infer([tensor("x", datatype, [1, 4], [1, 2, 3, 4])], "shift")
        assert outputs(same)["top"]["data"] == [6.0]


def test_the_width_that_was_sent_is_computed_in(house: House) -> None:
    made = outputs(house.infer([tensor("x", "FP32", [1, 4], [0.1, 0, 0, 0])], "shift"))
    assert made["moved"]["datatype"] == "FP32"
    expected = np.array([0.1, 0, 0, 0], np.float32) + np.float32(2)
    assert made["moved"]["data"] == expected.tolist()


def test_missing_numbers_come_as_null_or_nan_and_leave_as_null(house: House) -> None:
    for text in (b"null", b"NaN"):
        body = b'{"inputs": [%b]}' % (INPUT % (b"FP64", text))
        made = house.client.post("/v2/models/shift/infer", body).json
        assert outputs(made)["moved"]["data"] == [3.0, 4.0, 5.0, None]
    infinite = (
        b'{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP64","data":[[1,2,3,-Infinity]]}]}'
    )
    made = house.client.post("/v2/models/shift/infer", infinite).json
    assert outputs(made)["moved"]["data"] == [3.0, 4.0, 5.0, None]
    assert outputs(made)["top"]["data"] == [5.0]


def test_of_keys_that_come_twice_the_last_counts(house: House) -> None:
    body = (
        b'{"id": "a", "inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP64", '
        b'"data": [9, 9, 9, 9], "data": [1, 2, 3, 4]}], "id": "b"}'
    )
    made = house.client.post("/v2/models/shift/infer", body).json
    assert made["id"] == "b"
    assert outputs(made)["top"]["data"] == [6.0]


def test_ids_come_back_as_they_were(house: House) -> None:
    x = [tensor("x", "FP64", [1, 4], [1, 2, 3, 4])]
    for name in ["", "42", 'quote " and é 😀', "%b%d"]:
        assert house.infer(x, "shift", id=name)["id"] == name
    assert "id" not in house.infer(x, "shift")


def test_columns_may_come_one_by_one(house: House) -> None:
    together = house.infer([tensor("x", "FP64", [2, 4], FLAT)], "shift")
    columns = [tensor(f"c{n}", "FP64", [2, 1], [FLAT[n], FLAT[4 + n]]) for n in range(4)]
    assert house.infer(columns, "shift") == together
    columns[2] = tensor("c2", "FP64", [1], [1.0])
    reply = house.client.post("/v2/models/shift/infer", {"inputs": columns})
    assert reply.status == 400
    assert "different lengths" in reply.error


def test_records_take_columns_by_name_in_any_order(house: House) -> None:
    columns = [
        tensor("city", "BYTES", [2, 1], ["Oslo", None]),
        tensor("income", "INT32", [2], [10, 20]),
        tensor("age", "FP64", [2], [1.5, None]),
    ]
    made = outputs(house.infer(columns, "people"))
    assert made["both"]["data"] == [3.0, 20.0, None, 40.0]
    assert made["city"]["data"] == ["Oslo", None]
    others = [*columns, tensor("others", "FP64", [2], [1, 2])]
    assert outputs(house.infer(others, "people")) == made
    reply = house.client.post("/v2/models/people/infer", {"inputs": columns[:2]})
    assert reply.status == 400
    assert "column" in reply.error
    twice = [*columns, columns[0]]
    assert house.client.post("/v2/models/people/infer", {"inputs": twice}).status == 400


def test_several_inputs_go_by_name(house: House) -> None:
    left, right = tensor("left", "FP64", [1, 2], [1, 2]), tensor("right", "FP64", [1, 2], [3, 4])
    made = house.infer([right, left], "both")
    assert outputs(made)["sum"]["data"] == [4.0, 6.0]
    third = tensor("third", "FP64", [1, 2], [0, 0])
    for bad in [[left], [left, right, third], [left, third]]:
        reply = house.client.post("/v2/models/both/infer", {"inputs": bad})
        assert reply.status == 400


def test_words_leave_as_rows_of_json(house: House) -> None:
    made = house.infer([tensor("document", "BYTES", [2], ["one two", "three"])], "words")
    assert [json.loads(row) for row in made["outputs"][0]["data"]] == [["one", "two"], ["three"]]
    one = house.infer([tensor("document", "BYTES", [1], ["one two"])], "words")
    assert one["outputs"][0]["data"] == ['["one","two"]']


def test_a_request_for_a_table_is_answered_with_columns(house: House) -> None:
    table = {"content_type": "pd"}
    rows = tensor("X", "FP64", [2, 4], [0.5] * 8)
    arrays = outputs(house.infer([rows]))
    made = house.infer([rows], parameters=table, outputs=[{"name": "probabilities"}])
    assert made["parameters"] == table
    assert list(outputs(made)) == [f"probabilities.{name}" for name in CLASSES]
    columns = [each["data"] for each in made["outputs"]]
    assert np.ravel(columns, "F").tolist() == arrays["probabilities"]["data"]
    asked = [{"name": "probabilities", "parameters": {"content_type": "np"}}]
    assert house.infer([rows], parameters=table, outputs=asked)["outputs"][0]["shape"] == [2, 3]
    asked = [{"name": "scores", "parameters": {"classification": 2}}]
    best = house.infer([rows], parameters=table, outputs=asked)
    assert list(outputs(best)) == ["scores.0", "scores.1"]
    arrays_only = tensor("X", "FP64", [2, 4], [0.5] * 8, content_type="np")
    assert "parameters" not in house.infer([arrays_only])


def test_content_types_are_read(house: House) -> None:
    text = "word001 word002"
    plain = house.infer([tensor("document", "BYTES", [1], [text])], "text")
    packed = tensor("document", "BYTES", [1, 1], ["d29yZDAwMSB3b3JkMDAy"], content_type="base64")
    made = house.infer([packed], "text")
    assert outputs(made)["score"]["data"] == outputs(plain)["score"]["data"]
    assert outputs(made)["score"]["parameters"] == {"content_type": "np"}
    bad = [
        tensor("document", "BYTES", [1], ["no base64!"], content_type="base64"),
        tensor("document", "BYTES", [1], ["yesterday"], content_type="datetime"),
        tensor("document", "BYTES", [1], [text], content_type="image"),
        tensor("document", "BYTES", [1], [text], content_type=7),
    ]
    said = "as base64", "as a time in ISO 8601", "no such content type", "no such content type"
    bad.append(tensor("document", "BYTES", [1], ["{x"], content_type="pd_json"))
    for each, what in zip(bad, (*said, "as JSON"), strict=True):
        reply = house.client.post("/v2/models/text/infer", {"inputs": [each]})
        assert reply.status == 400, each
        assert what in reply.json["error"]
    when = tensor("document", "BYTES", [1], ["2024-05-01T10:00:00"], content_type="datetime")
    assert house.infer([when], "text")["outputs"]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    name=st.text(max_size=3),
    shape=st.lists(st.integers(-2, 4), max_size=3) | ANYTHING,
    datatype=st.sampled_from(["FP64", "FP32", "INT64", "BOOL", "BYTES", "FP16", "X"]),
    data=st.lists(SCALARS, max_size=8) | ANYTHING,
)
def test_any_tensor_is_an_array_or_an_error(
    name: str, shape: Any, datatype: str, data: Any
) -> None:
    body = json.dumps({"inputs": [tensor(name, datatype, shape, data)]}).encode()
    try:
        (item,) = codec_json.decode(body).inputs
        made = codec_json.values(item, "$.inputs[0]")
    except HttpError:
        return  # which is what clients are told
    assert made.shape == tuple(shape)
