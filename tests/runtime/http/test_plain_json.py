"""Plain JSON for people, and the first version of the protocol."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flour
from runtime import Runtime
from runtime.http import Server, ServerSettings
from runtime.http.answer import inference, plain_json
from tests.runtime.http.client import Client
from tests.runtime.http.conftest import CLASSES, House


def test_a_row_gets_an_object_with_probabilities_by_class(house: House) -> None:
    row = house.rows[0]
    made = house.client.post("/predict/iris", row.tolist()).json
    assert made["label"] == house.original.predict([row])[0]
    assert list(made["probabilities"]) == CLASSES
    expected = house.original.predict_proba([row])[0]
    np.testing.assert_allclose(list(made["probabilities"].values()), expected, rtol=1e-12)


def test_rows_get_an_array(house: House) -> None:
    made = house.client.post("/predict/iris", house.rows[:5].tolist()).json
    assert [each["label"] for each in made] == house.original.predict(house.rows[:5]).tolist()
    assert made[2] == house.client.post("/predict/iris", house.rows[2].tolist()).json


@pytest.mark.parametrize("short", [True, False])
def test_one_row_is_one_by_the_short_and_the_long_way(
    monkeypatch: pytest.MonkeyPatch,
    short: bool,  # noqa: FBT001
) -> None:
    document = flour.text("document")
    with Runtime(executors=1, result_bytes=0) as runtime:
        words = document.tokenize().word_ngrams(["bad", "good"], 1, 1)
        runtime.register("words", words.named("words"), background=False)
        runtime.register("upper", document.upper().named("upper"), background=False)
        for module in () if short else (inference, plain_json):
            monkeypatch.setattr(module, "quick", lambda *_: None)
        with Server(runtime, ServerSettings(port=0, max_unread=0.0)) as server:
            client = Client(server.port)
            assert client.post("/predict/words", "good good").json == {"words": [0.0, 2.0]}
            asked = client.post("/v1/models/words:predict", {"instances": ["good good"]})
            assert asked.json == {"predictions": [[0.0, 2.0]]}
            assert client.post("/predict/upper", "a label").json == {"upper": "A LABEL"}
            told = client.get("/metrics").body.decode()
    assert 'pretzel_rows_total{model="upper",version="1"} 1\n' in told


def test_objects_are_columns_or_rows(house: House) -> None:
    row = {"city": "Oslo", "age": 1, "income": None}
    one = house.client.post("/predict/people", row).json
    assert one == {"both": [2.0, None], "city": "Oslo"}
    assert house.client.post("/predict/people", [row, row]).json == [one, one]
    columns = {name: [value, value] for name, value in row.items()}
    assert house.client.post("/predict/people", columns).json == [one, one]


def test_texts_and_several_inputs(house: House) -> None:
    one = house.client.post("/predict/text", "word001 word002").json
    assert house.client.post("/predict/text", ["word001 word002"]).json == [one]
    both = {"left": [1, 2], "right": [3, 4]}
    assert house.client.post("/predict/both", both).json == {"sum": [4.0, 6.0]}
    assert house.client.post("/predict/both", [both, both]).json == [{"sum": [4.0, 6.0]}] * 2
    assert house.client.post("/predict/words", ["a bc def"]).json == [{"words": ["bc", "def"]}]


def test_a_version_can_be_named(house: House) -> None:
    zero = [0, 0, 0, 0]
    assert house.client.post("/predict/shift@1", zero).json["top"] == 1.0
    assert house.client.post("/predict/shift", zero).json["top"] == 2.0
    assert house.client.post("/predict/shift%402", zero).json["top"] == 2.0


HALF = "half of a surrogate pair is no text (found: \\ud8"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/predict/iris", '[5.1, "abc", 1.4, 0.2]', "at $[0][1] (found: str 'abc')"),
        ("/predict/iris", '[[1, 2, 3, 4], [5.1, 3, "abc", null]]', "at $[1][2] (found: str 'abc')"),
        (
            "/v1/models/iris:predict",
            '{"instances": [[1, 2, 3, "x"]]}',
            "at $[0][3] (found: str 'x')",
        ),
        ("/predict/text", r'"x \ud800y"', HALF + "00)"),
        ("/predict/text", r'"\ud83d\ude00 \\ud800 \ud801"', HALF + "01)"),
        ("/predict/text", r'"\udc00"', r"(found: \udc00)"),
        ("/predict/text", '"x', "the body is no JSON (found: Input data was truncated)"),
        ("/predict/text", " ", "the body is empty; JSON is expected"),
        ("/v2/models/iris/infer", "", "the body is empty; JSON is expected"),
        ("/predict/iris", "[1e400, 2, 3, 4]", "at $[0]; float64 has numbers up to 1.8e308"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    house: House, path: str, body: str, said: str
) -> None:
    reply = house.client.post(path, body.encode())
    assert (reply.status, said in reply.error) == (400, True), reply.error


@pytest.mark.parametrize(
    ("model", "body", "status"),
    [
        *(("iris", each, 400) for each in ([1, 2, 3], {"a": 1}, None, "text", b"")),
        *(("iris", [[1, 2, 3, 4], [1, 2]], 400), ("people", {"city": "Oslo", "age": 1}, 400)),
        ("people", {"city": "Oslo", "age": 1, "extra": 2}, 400),
        ("people", {"city": 7, "age": 1, "income": 1}, 400),
        *(("text", 7, 400), ("both", {"left": [1, 2]}, 400), ("none", [1], 404)),
        ("iris@7", [1], 404),
    ],
)
def test_what_a_model_cannot_take(house: House, model: str, body: object, status: int) -> None:
    reply = house.client.post(f"/predict/{model}", b"null" if body is None else body)
    assert reply.status == status, reply.body
    assert reply.error


def test_errors_name_the_row_and_the_column(house: House) -> None:
    rows = [{"city": "Oslo", "age": 1, "income": 1}, {"city": "Oslo", "agee": 1, "income": 1}]
    error = house.client.post("/predict/people", rows).error
    assert "$[1]" in error
    assert "age" in error


def test_the_first_version_of_the_protocol(house: House) -> None:
    asked = {"instances": ["word001", "word002 word001"], "signature_name": "ignored"}
    made = house.client.post("/v1/models/text:predict", asked).json["predictions"]
    expected = house.client.post("/predict/text", asked["instances"]).json
    assert made == [each["score"] for each in expected]
    several = house.client.post("/v1/models/iris:predict", {"instances": house.rows[:2].tolist()})
    assert several.json["predictions"] == house.original.predict(house.rows[:2]).tolist()
    instances: list[Any] = [[], {}, [1], [1, 2, 3, 4]]
    for bad in [{}, [], *({"instances": each} for each in instances)]:
        reply = house.client.post("/v1/models/iris:predict", bad)
        assert reply.status == 400, bad
        assert reply.error


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
NAMES = st.sampled_from(["age", "income", "city", "left", "right", "document", "x"])
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=14,
)
MODELS = ["iris", "people", "text", "both", "whole", "words"]


@given(data=ANYTHING, model=st.sampled_from(MODELS))
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_is_answered_or_refused(house: House, data: Any, model: str) -> None:
    body = json.dumps(data).encode()  # with NaN and Infinity as bare words
    for path, sent in [
        (f"/predict/{model}", body),
        (f"/v1/models/{model}:predict", b'{"instances": %b}' % body),
    ]:
        reply = house.client.post(path, sent)
        assert reply.status in {200, 400}, (reply.body, sent)
