"""Numbers of JSON read natively: bit for bit what Python reads, and nothing that is no JSON."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.codec import codec_json, number_arrays
from runtime.http.codec.number_arrays import LEAST_BYTES, ParsedArray, read, taken_out
from runtime.http.wire.problems import HttpError
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import tensor

pytestmark = pytest.mark.usefixtures("native_readers")
FINITE = st.floats(allow_nan=False, allow_infinity=False)
DECIMAL = st.from_regex(
    r"-?(0|[1-9][0-9]{0,9})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def numbers(text: bytes) -> ParsedArray:
    found = read(text, 0)
    assert found is not None
    return found


@settings(max_examples=300)
@given(st.lists(FINITE, min_size=1))
def test_what_python_writes_is_read_to_the_bit(values: list[float]) -> None:
    usual = [each for each in values if not 0 < abs(each) < 1e-307]
    found = read(json.dumps([1.0, *usual]).encode(), 0)
    assert found is not None
    assert found.values.tobytes() == np.array([1.0, *usual]).tobytes()


@settings(max_examples=500)
@given(DECIMAL)
def test_any_number_is_pythons_or_left_to_others(text: str) -> None:
    found = read(f"[{text}]".encode(), 0)
    if found is not None:
        assert bits(found.values[0]) == bits(float(json.loads(text)))
    else:
        assert not 1e-307 < abs(float(text)) < 1e300 or float(text) == 0.0


@pytest.mark.parametrize("mantissa", [(1 << 52) + 1, (1 << 53) - 1, 0x1555555555555 | 1 << 52])
def test_halves_are_rounded_to_even(mantissa: int) -> None:
    halves = [(2 * mantissa + 1) << shift for shift in range(10)]
    around = [each + step for each in halves for step in (-1, 0, 1)]
    assert numbers(json.dumps(around).encode()).values.tolist() == [float(each) for each in around]


def test_rows_have_one_width() -> None:
    text = b"[ [1, 2.5],\n[null, -4e3] ] rest"
    found = numbers(text)
    assert (found.width, text[found.end :]) == (2, b" rest")
    assert np.array_equal(found.values, [1, 2.5, np.nan, -4000], equal_nan=True)


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "[1,]", "[,1]", "[01]", "[1.]", "[.5]", "[1e]", "[1e+]", "[-]", "[+1]", "[1 2]"),
        *("[1", "[1,", "[-", "[1.", "[1e", "[n", "[nul]", "[true]", '["a"]', "[NaN]", "[1.5.2]"),
        *("[[1],[1,2]]", "[1,[2]]", "[[1],2]", "[[]]", "[[1],[]]", "[[[1]]]"),
        *("[1e400]", "[-1e999999999]", "[12345678901234567890]", "[[1]", "[\x0b1]", "[0x1]"),
    ],
)
def test_everything_else_is_left_to_the_general_decoder(text: str) -> None:
    assert read(text.encode(), 0) is None


def padded(body: dict[str, Any]) -> bytes:
    return json.dumps(body | {"parameters": {"text": "x" * LEAST_BYTES}}).encode()


def test_only_data_is_taken_out() -> None:
    body = (
        rb'{"id": "\"data\":[1]", "inputs": [{"data": [1, 2]}, {"data":["a"]}, {"data" :\n[[3]]}]}'
    )
    rest, found = taken_out(body.replace(rb"\n", b"\n"))
    assert bytes(rest).count(b'"#') == 2
    numbers = [each for each in found if isinstance(each, number_arrays.ParsedArray)]
    assert [each.values.tolist() for each in numbers] == [[1, 2], [3]]


CASES: list[list[dict[str, Any]]] = [
    [tensor("x", "FP64", [2, 2], [1, 2.5, 3, -4e-300])],
    [tensor("x", "FP64", [2, 2], [[1, 2.5], [3, None]])],
    *([tensor("x", "FP32", [len(each)], each)] for each in ([0.1, 16777217], [1e300])),
    [tensor("x", "FP64", [3], [[1, 2.5], [3, 4]])],
    *([tensor("x", "FP64", shape, [1, 2, 3])] for shape in ([2, 2], [-1])),
    [tensor("x", "INT64", [2], [1, 9007199254740993]), tensor("y", "FP64", [1], [1])],
    [tensor("x", "INT64", [1], [1.5])],
    [tensor("x", "BYTES", [1], ["#0"]), tensor("y", "FP64", [1], [1])],
    [tensor("x", "FP64", [1], "#0"), tensor("y", "FP64", [1], [1])],
    [tensor("x", "FP64", [1], "#0")],
]


@pytest.mark.parametrize("inputs", CASES)
def test_both_ways_mean_the_same(
    inputs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> list[object]:
        try:
            asked = codec_json.decode(padded({"inputs": inputs}))
            values = [codec_json.values(each, "$") for each in asked.inputs]
        except HttpError as problem:
            return [str(problem)]
        return [(each.dtype, each.shape, each.tolist()) for each in values]

    native = told()
    monkeypatch.setattr(codec_json, "_with_numbers", lambda *_: None)
    assert repr(native) == repr(told())


WIDTH = 8


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    flow = flour.vector("x", WIDTH).linear([[1.0] * WIDTH], [0.0]).named("sum")
    with Runtime(executors=1) as runtime:
        runtime.register("sum", flow)
        with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
            yield Client(server.port)


def test_rows_as_plain_json(client: Client) -> None:
    rows = np.arange(100.0 * WIDTH).reshape(-1, WIDTH)
    made = client.post("/predict/sum", rows.tolist()).json
    assert [each["sum"] for each in made] == rows.sum(1, keepdims=True).tolist()
    assert client.post("/predict/sum", rows[:, 1:].tolist()).status == 400
    missing = client.post("/predict/sum", [[None] * WIDTH] * LEAST_BYTES)
    assert missing.status == client.post("/predict/sum", [[None] * WIDTH]).status


@pytest.mark.parametrize("binary", [False, True])
def test_a_large_body_holds_nobody_up(client: Client, binary: bool) -> None:  # noqa: FBT001
    rows = np.random.default_rng(0).normal(size=(60_000, WIDTH))
    x = tensor("x", "FP64", list(rows.shape), rows.ravel().tolist())
    headers = {}
    if binary:
        x = tensor("x", "FP64", list(rows.shape), None, binary_data_size=rows.nbytes)
        del x["data"]
    head = json.dumps({"inputs": [x]}).encode()
    if binary:
        headers["inference-header-content-length"] = str(len(head))
    body = head + (rows.tobytes() if binary else b"")
    client.post("/v2/models/sum/infer", body, headers)
    infer = partial(client.post, "/v2/models/sum/infer", body, headers)
    reply, took, waited = client.beside(infer)
    assert np.allclose(reply.json["outputs"][0]["data"], rows.sum(1))
    assert waited < max(took / 2, 0.1), "others waited for the large body"
