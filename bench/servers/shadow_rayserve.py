"""Ray Serve with a champion and its shadow: a deployment for each, composed by handles."""

import signal
import sys
from typing import Any

from ray import serve

from bench.servers.ray_start import start
from bench.servers.shadow_parts import SHADOWED, answer, probability, read

# Annotations here are read when the deployments are made, so they are no strings.

_deployment = serve.deployment(
    num_replicas=1,
    max_ongoing_requests=100,
    logging_config={"enable_access_log": False},
    ray_actor_options={"num_cpus": 0},
)


@_deployment
class Model:
    """A pipeline."""

    def __init__(self, file: str, name: str) -> None:
        """Unpickle it."""
        self.model = getattr(read(file), name)

    async def __call__(self, row: list[float]) -> float:
        """Ask it, on the loop: a thread for each call would cost more than the call."""
        return probability(self.model, row)


@_deployment
class Front:
    """What clients call."""

    def __init__(self, mode: str, *models: Any) -> None:
        """Keep the handles of the pipelines."""
        self.mode, (self.champion, self.shadow) = mode, models

    async def __call__(self, request: Any) -> dict[str, Any]:
        """Answer as the champion, and have the shadow asked after that."""
        row = (await request.json())["row"]
        found = await self.champion.remote(row)
        if self.mode == SHADOWED:
            self.shadow.remote(row)
        return answer(found)


if __name__ == "__main__":
    start(int(sys.argv[3]))
    models = [
        Model.options(name=name).bind(sys.argv[1], name)  # type: ignore[attr-defined]  # as bentoml
        for name in ("champion", "shadow")
    ]
    serve.run(Front.bind(sys.argv[2], *models), route_prefix="/predict")  # type: ignore[attr-defined]  # as bentoml
    signal.pause()
