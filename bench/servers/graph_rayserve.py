"""Ray Serve with the risk graph: a deployment for each step, composed by handles."""

import asyncio
import signal
import sys
from typing import Any

import numpy as np
from ray import serve

from bench.servers.graph_parts import answer, combined, read
from bench.servers.ray_start import start

# Annotations here are read when the deployments are made, so they are no strings.

_deployment = serve.deployment(
    num_replicas=1,
    max_ongoing_requests=100,
    logging_config={"enable_access_log": False},
    ray_actor_options={"num_cpus": 0},
)


class Step:
    """A step of the graph."""

    def __init__(self, file: str, name: str) -> None:
        """Unpickle it."""
        self.model = getattr(read(file), name)


@_deployment
class Features(Step):
    """The features of a row."""

    async def __call__(self, row: list[float]) -> Any:
        """Ask the step, on the loop: a thread for each call would cost more than the call."""
        return self.model.transform([row])


@_deployment
class Model(Step):
    """A classifier."""

    async def __call__(self, features: Any) -> float:
        """Ask the model, as above."""
        return float(self.model.predict_proba(np.asarray(features))[0, 1])


@_deployment
class Decide:
    """What clients call."""

    def __init__(self, features: Any, linear: Any, trees: Any) -> None:
        """Keep the handles of the steps."""
        self.features, self.models = features, (linear, trees)

    async def __call__(self, request: Any) -> dict[str, Any]:
        """Ask the steps: the models both at once, on what the features' step gives."""
        asked = await request.json()
        features = await self.features.remote(asked["row"])
        both = await asyncio.gather(*(each.remote(features) for each in self.models))
        return answer(combined(*both))


if __name__ == "__main__":
    start(int(sys.argv[2]))
    models = [
        Model.options(name=name).bind(sys.argv[1], name)  # type: ignore[attr-defined]  # as bentoml
        for name in ("linear", "trees")
    ]
    features = Features.bind(sys.argv[1], "features")  # type: ignore[attr-defined]  # as bentoml
    bound = Decide.bind(features, *models)  # type: ignore[attr-defined]  # as bentoml
    serve.run(bound, route_prefix="/predict")
    signal.pause()
