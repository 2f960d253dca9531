"""Models of MLServer's: a champion, its shadow, and what clients call."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from bench.servers.shadow_parts import read


class Model(MLModel):  # type: ignore[misc]  # the library is in an environment of its own
    """A pipeline."""

    async def load(self) -> bool:
        """Unpickle it."""
        self._model = getattr(read(self.settings.parameters.uri), self.name)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Decode, ask and encode."""
        rows = NumpyCodec.decode_input(payload.inputs[0])
        made = NumpyCodec.encode_output("probabilities", self._model.predict_proba(rows))
        return InferenceResponse(model_name=self.name, outputs=[made])


class Front(MLModel):  # type: ignore[misc]  # as above
    """What clients call."""

    infer: ClassVar[Any]
    shadowed: ClassVar[bool] = False
    asked: ClassVar[set[asyncio.Task[Any]]] = set()

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer as the champion, and have the shadow asked after that."""
        ask = type(self).infer
        found = await ask(InferenceRequest(inputs=payload.inputs), "champion")
        if self.shadowed:
            coming = ask(InferenceRequest(inputs=payload.inputs), "shadow")
            task = asyncio.create_task(coming)
            self.asked.add(task)
            task.add_done_callback(self.asked.discard)
        return InferenceResponse(model_name=self.name, outputs=found.outputs)
