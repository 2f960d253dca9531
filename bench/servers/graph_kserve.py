"""KServe with the risk graph: its model server, and what its InferenceGraph does, by hand.

On a cluster the graph's router is a program of its own. It asks the services of a sequence one
after another, and those of an ensemble at once, each by HTTP with JSON. Here the router is one more
model of the same process, so that a hop is saved.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httpx
import numpy as np
from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer

from bench.servers.graph_parts import THRESHOLD, combined, read


class Step(Model):  # type: ignore[misc]  # the library is in an environment of its own
    """A step: features, or probabilities."""

    def __init__(self, name: str, file: str) -> None:
        """Unpickle it."""
        super().__init__(name)
        step = getattr(read(file), name)
        self._ask = getattr(step, "predict_proba" if name != "features" else "transform")
        self.ready = True

    def predict(self, payload: InferRequest, *_: object, **__: object) -> InferResponse:
        """Decode, ask and encode."""
        return _response(self.name, self._ask(payload.inputs[0].as_numpy()))


class Decide(Model):  # type: ignore[misc]  # as above
    """What clients call."""

    def __init__(self, port: int) -> None:
        """Keep connections to the steps open."""
        super().__init__("decide")
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}")
        self.ready = True

    async def predict(self, payload: InferRequest, *_: object, **__: object) -> InferResponse:
        """Ask the steps: a sequence of the features and of an ensemble of both models."""
        given = payload.inputs[0]
        features = await self._asked("features", given.data, given.shape)
        inside = features["data"], features["shape"]
        both = await asyncio.gather(*(self._asked(name, *inside) for name in ("linear", "trees")))
        score = combined(*(float(each["data"][1]) for each in both))
        return _response("decide", np.array([[score, float(score < THRESHOLD)]]))

    async def _asked(self, name: str, data: list[float], shape: list[int]) -> Any:
        tensor = {"name": "input", "shape": shape, "datatype": "FP64", "data": data}
        body = {"inputs": [tensor]}
        answer = await self._client.post(f"/v2/models/{name}/infer", json=body)
        return answer.raise_for_status().json()["outputs"][0]


def _response(name: str, made: Any) -> InferResponse:
    output = InferOutput("output", list(made.shape), "FP64")
    output.set_data_from_numpy(made, binary_data=False)
    return InferResponse("", name, [output])


if __name__ == "__main__":
    file, port = sys.argv[1], int(sys.argv[2])
    server = ModelServer(http_port=port, enable_grpc=False, enable_latency_logging=False)
    server.start([Decide(port), *(Step(name, file) for name in ("features", "linear", "trees"))])
