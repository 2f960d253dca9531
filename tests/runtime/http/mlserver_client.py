"""Run in an environment of its own by test_clients.py: MLServer's codecs, as they come."""

from __future__ import annotations

import sys
from typing import Any
from urllib.request import urlopen

import numpy as np
import pandas as pd
from mlserver.codecs import (
    Base64Codec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    StringCodec,
    StringRequestCodec,
)
from mlserver.types import InferenceRequest, InferenceResponse, RequestOutput


def infer(model: str, request: Any) -> Any:
    """Post a request that a codec has made, and read the answer as MLServer's types."""
    url = f"http://127.0.0.1:{sys.argv[1]}/v2/models/{model}/infer"
    body = request.model_dump_json(exclude_none=True).encode()
    with urlopen(url, data=body, timeout=60) as answer:
        return InferenceResponse.model_validate_json(answer.read())


def tables() -> None:
    """Every kind of answer as a table: labels, a column for each class, numbers, lists of words."""
    for count in (1, 2, 5):
        x = np.linspace(-2.0, 2.0, 4 * count).reshape(count, 4)
        plain = infer("iris", NumpyRequestCodec.encode_request(x))
        arrays = {each.name: each for each in plain.outputs}
        asked = PandasCodec.encode_request(pd.DataFrame(x, columns=list("abcd")))
        made = infer("iris", asked)
        assert made.parameters.content_type == PandasCodec.ContentType
        table = PandasCodec.decode_response(made)
        assert len(table) == count
        assert list(table["label"]) == StringCodec.decode_output(arrays["label"])
        classes = [f"probabilities.{name}" for name in ("high", "low", "middle")]
        shares = table[classes]
        assert set(shares.dtypes) == {np.dtype("float64")}
        probabilities = NumpyCodec.decode_output(arrays["probabilities"])
        np.testing.assert_array_equal(shares, probabilities)
        scores = table[[f"scores.{index}" for index in range(3)]]
        np.testing.assert_array_equal(scores, NumpyCodec.decode_output(arrays["scores"]))
        assert set(table) == {"label", *classes, *scores}
        whole = pd.DataFrame({"a": range(count), "b": range(count)})
        numbers = PandasCodec.decode_response(infer("whole", PandasCodec.encode_request(whole)))
        np.testing.assert_array_equal(numbers, np.repeat(np.arange(count)[:, None], 3, axis=1))
        assert set(numbers.dtypes) == {np.dtype("int64")}
        texts = pd.DataFrame({"document": pd.Series(["one two"] * count, dtype=object)})
        asked = PandasCodec.encode_request(texts, use_bytes=False)
        words = PandasCodec.decode_response(infer("words", asked))
        assert list(words["words"]) == [["one", "two"]] * count
        score = PandasCodec.decode_response(infer("text", asked))
        arrays = infer("text", StringRequestCodec.encode_request(["one two"] * count))
        assert list(score["score"]) == NumpyCodec.decode_output(arrays.outputs[0]).ravel().tolist()
    mixed = pd.DataFrame({"city": pd.Series([["Oslo"]], dtype=object)})
    asked = PandasCodec.encode_request(mixed, use_bytes=False)
    assert asked.inputs[0].parameters.content_type == "pd_json"
    asked.inputs[0].name = "document"
    asked.inputs[0].data.root[0] = '"one two"'
    words = PandasCodec.decode_response(infer("words", asked))
    assert list(words["words"]) == [["one", "two"]]


def main() -> None:
    """Send arrays, frames, texts and base64, and decode the answers."""
    x = np.arange(8.0).reshape(2, 4)
    made = infer("shift", NumpyRequestCodec.encode_request(x))
    np.testing.assert_array_equal(NumpyCodec.decode_output(made.outputs[0]), x + 2)
    city = pd.Series(["Oslo", "Łódź"], dtype=object)
    frame = pd.DataFrame({"city": city, "age": [1.0, 2.0], "income": [3, 4]})
    asked = PandasCodec.encode_request(frame, use_bytes=False)
    people = PandasCodec.decode_response(infer("people", asked))
    assert list(people) == ["both.0", "both.1", "city"]
    np.testing.assert_array_equal(people[["both.0", "both.1"]], [[2.0, 6.0], [4.0, 8.0]])
    assert list(people["city"]) == ["Oslo", "Łódź"]
    asked.outputs = [
        RequestOutput(name="both", parameters={"content_type": "np"}),
        RequestOutput(name="city"),
    ]
    both, city = infer("people", asked).outputs
    np.testing.assert_array_equal(NumpyCodec.decode_output(both), [[2.0, 6.0], [4.0, 8.0]])
    assert StringCodec.decode_output(city) == ["Oslo", "Łódź"]
    only = infer(
        "people",
        InferenceRequest(
            inputs=PandasCodec.encode_request(frame, use_bytes=False).inputs,
            parameters={"content_type": "pd"},
            outputs=[{"name": "city"}],
        ),
    )
    assert list(PandasCodec.decode_response(only)["city"]) == ["Oslo", "Łódź"]
    texts = ["word001 word002", "word003"]
    plain = infer("text", StringRequestCodec.encode_request(texts, use_bytes=False))
    packed = InferenceRequest(inputs=[Base64Codec.encode_input("document", texts, use_bytes=False)])
    assert infer("text", packed).outputs[0].data == plain.outputs[0].data
    tables()


main()
sys.stdout.write("mlserver: all is well\n")
