"""Run in an environment of its own by test_clients.py: KServe's client, as it comes."""

from __future__ import annotations

import asyncio
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig


async def main(url: str) -> None:
    """Ask what the client can ask, in both versions of the protocol."""
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0, timeout=60))
    assert await client.is_server_live(url)
    assert await client.is_server_ready(url)
    assert await client.is_model_ready(url, "shift")
    x = np.arange(12.0).reshape(3, 4)
    plain = InferInput("x", [3, 4], "FP64", x.ravel().tolist())
    made = await client.infer(
        url, InferRequest("shift", [plain], request_id="k1"), model_name="shift"
    )
    assert made.id == "k1"
    assert made.model_name == "shift"
    top = next(each for each in made.outputs if each.name == "top")
    np.testing.assert_array_equal(top.as_numpy(), x.max(axis=1) + 2)
    raw = InferInput("x", [3, 4], "FP64")
    raw.set_data_from_numpy(x, binary_data=True)
    made = await client.infer(url, InferRequest("shift", [raw]), model_name="shift")
    moved = next(each for each in made.outputs if each.name == "moved")
    np.testing.assert_array_equal(moved.as_numpy(), x + 2)
    async with InferenceGRPCClient(url.removeprefix("http://"), retries=0, timeout=60) as grpc:
        assert await grpc.is_server_live()
        assert await grpc.is_server_ready()
        assert await grpc.is_model_ready("shift")
        for each in (plain, raw):
            made = await grpc.infer(InferRequest("shift", [each], request_id="k2"))
            assert made.id == "k2"
            moved = next(each for each in made.outputs if each.name == "moved")
            np.testing.assert_array_equal(moved.as_numpy(), x + 2)
    first = InferenceRESTClient(RESTConfig(protocol="v1", retries=0, timeout=60))
    assert await first.is_model_ready(url, "text")
    said = await first.infer(url, {"instances": ["word001", "word002"]}, model_name="text")
    assert len(said["predictions"]) == 2


asyncio.run(main(f"http://127.0.0.1:{sys.argv[1]}"))
sys.stdout.write("kserve: all is well\n")
