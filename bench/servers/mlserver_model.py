"""A model of MLServer's: a pickled scikit-learn object, asked for its probabilities.

MLServer's own runtime for scikit-learn pins a version of it that cannot read our pickles.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Pickled(MLModel):  # type: ignore[misc]  # the library is in an environment of its own
    """Decode, predict and encode, as MLServer's scikit-learn runtime does."""

    async def load(self) -> bool:
        """Unpickle."""
        self._estimator = pickle.loads(Path(self.settings.parameters.uri).read_bytes())  # noqa: ASYNC240 (once)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer with the probabilities."""
        rows = NumpyCodec.decode_input(payload.inputs[0])
        made = NumpyCodec.encode_output("probabilities", self._estimator.predict_proba(rows))
        return InferenceResponse(model_name=self.name, outputs=[made])
