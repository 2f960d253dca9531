"""Ray Serve with scikit-learn's objects: one replica, no batching, as its docs have it.

Its cluster takes ports on every interface, so it is started in a network of its own, and keeps its
files in a folder that goes with that (bench.enclosed).
"""

import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ray import serve

from bench.servers.ray_start import start
from bench.workload import Saved

# Annotations here are read when the deployment is made, so they are no strings.


@serve.deployment(
    num_replicas=1, max_ongoing_requests=100, logging_config={"enable_access_log": False}
)
class Api:
    """Answers with the probabilities."""

    def __init__(self, folder: str, count: int) -> None:
        """Unpickle every pipeline."""
        saved = Saved(Path(folder), count)
        self.models = [pipeline.estimator() for pipeline in saved.pipelines()]

    async def __call__(self, request: Any) -> dict[str, Any]:
        """Ask the model, on the loop: a thread for each call would cost more than the call."""
        asked = await request.json()
        answer = self.models[asked["model"]].predict_proba(np.array([asked["row"]]))
        return {"outputs": [{"name": "probabilities", "data": answer.reshape(-1).tolist()}]}


if __name__ == "__main__":
    start(int(sys.argv[3]))
    bound = Api.bind(sys.argv[1], int(sys.argv[2]))  # type: ignore[attr-defined]  # as bentoml
    serve.run(bound, route_prefix="/predict")
    signal.pause()
