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
from mlserver.types import InferenceRequest, InferenceResponse


def infer(model: str, request: Any) -> Any:
    """Post a request that a codec has made, and read the answer as MLServer's types."""
    url = f"http://127.0.0.1:{sys.argv[1]}/v2/models/{model}/infer"
    body = request.model_dump_json(exclude_none=True).encode()
    with urlopen(url, data=body, timeout=60) as answer:
        return InferenceResponse.model_validate_json(answer.read())


def main() -> None:
    """Send arrays, frames, texts and base64, and decode the answers."""
    x = np.arange(8.0).reshape(2, 4)
    made = infer("shift", NumpyRequestCodec.encode_request(x))
    np.testing.assert_array_equal(NumpyCodec.decode_output(made.outputs[0]), x + 2)
    city = pd.Series(["Oslo", "Łódź"], dtype=object)
    frame = pd.DataFrame({"city": city, "age": [1.0, 2.0], "income": [3, 4]})
    found = infer("people", PandasCodec.encode_request(frame, use_bytes=False))
    both, city = found.outputs
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


main()
sys.stdout.write("mlserver: all is well\n")
