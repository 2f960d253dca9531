"""BentoML with scikit-learn's objects: one worker's application on uvicorn, without its supervisor.

That is what `bentoml serve` runs for each worker. The supervisor would only stand beside it: it
passes on a socket and restarts what dies, in sessions of its own, which could outlive the bench.
"""

import sys
from pathlib import Path
from typing import Any

import bentoml
import numpy as np
import uvicorn

from bench.workload import Saved

# Annotations here are read when the service is made, so they are no strings.


@bentoml.service(workers=1, metrics={"enabled": False}, logging={"access": {"enabled": False}})
class Api:
    """Answers with the probabilities."""

    def __init__(self) -> None:
        """Unpickle every pipeline."""
        saved = Saved(Path(sys.argv[1]), int(sys.argv[2]))
        self.models = [pipeline.estimator() for pipeline in saved.pipelines()]

    @bentoml.api(route="/predict")  # type: ignore[untyped-decorator]  # as litserve
    async def predict(self, model: int, row: list[float]) -> dict[str, Any]:
        """Ask the model, on the loop: a thread for each call would cost more than the call."""
        answer = self.models[model].predict_proba(np.array([row]))
        return {"outputs": [{"name": "probabilities", "data": answer.reshape(-1).tolist()}]}


if __name__ == "__main__":
    # uvloop and httptools are installed beside it, and uvicorn takes them.
    application = Api.to_asgi()  # type: ignore[attr-defined]  # the decorator makes it a service
    uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[3]), log_level="warning")
