"""LitServe with scikit-learn's objects, one worker, no batching, as its docs have it."""

import sys
from pathlib import Path
from typing import Any

import litserve
import numpy as np

from bench.workload import Saved

# Annotations here are read when the server starts, so they are no strings.


class Api(litserve.LitAPI):  # type: ignore[misc]  # the library is in an environment of its own
    """Answers with the probability of the second class."""

    def setup(self, device: str) -> None:
        """Unpickle every pipeline."""
        saved = Saved(Path(sys.argv[1]), int(sys.argv[2]))
        self.models = [pipeline.estimator() for pipeline in saved.pipelines()]

    def decode_request(self, request: dict[str, Any]) -> tuple[int, Any]:
        """The model's number and a matrix of one row."""
        return request["model"], np.array([request["row"]])

    def predict(self, asked: tuple[int, Any]) -> Any:
        """Ask the model."""
        number, row = asked
        return self.models[number].predict_proba(row)

    def encode_response(self, answer: Any) -> dict[str, Any]:
        """In the shape of the others' answers."""
        return {"outputs": [{"name": "probabilities", "data": answer.reshape(-1).tolist()}]}


if __name__ == "__main__":
    server = litserve.LitServer(Api(), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[3]), generate_client_file=False)
