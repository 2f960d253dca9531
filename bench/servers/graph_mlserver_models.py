"""Models of MLServer's: the steps of the risk graph, and the graph."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from bench.servers.graph_parts import THRESHOLD, combined, read


class Step(MLModel):  # type: ignore[misc]  # the library is in an environment of its own
    """A step: features, or probabilities."""

    async def load(self) -> bool:
        """Unpickle it."""
        step = getattr(read(self.settings.parameters.uri), self.name)
        self._ask = getattr(step, "predict_proba" if self.name != "features" else "transform")
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Decode, ask and encode."""
        rows = NumpyCodec.decode_input(payload.inputs[0])
        made = NumpyCodec.encode_output("output", self._ask(rows))
        return InferenceResponse(model_name=self.name, outputs=[made])


class Decide(MLModel):  # type: ignore[misc]  # as above
    """What clients call."""

    infer: ClassVar[Any]

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Ask the steps: the models both at once, on what the features' step gives."""
        features = await self._asked("features", NumpyCodec.decode_input(payload.inputs[0]))
        both = await asyncio.gather(*(self._asked(name, features) for name in ("linear", "trees")))
        score = combined(*(float(each[0, 1]) for each in both))
        made = np.array([[score, float(score < THRESHOLD)]])
        outputs = [NumpyCodec.encode_output("decision", made)]
        return InferenceResponse(model_name=self.name, outputs=outputs)

    async def _asked(self, name: str, rows: Any) -> Any:
        request = InferenceRequest(inputs=[NumpyCodec.encode_input("input", rows)])
        answer = await type(self).infer(request, name)
        return NumpyCodec.decode_output(answer.outputs[0])
