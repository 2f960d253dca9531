"""BentoML with the risk graph: a service for each step, which the one that clients call depends on.

As without a graph it is one worker on uvicorn without the supervisor, and so its services call each
other in the process: `bentoml serve` would start a process for each, and calls would go by HTTP.
"""

import asyncio
import sys
from typing import Any

import bentoml
import numpy as np
import uvicorn

from bench.servers.graph_parts import answer, combined, read

# Annotations here are read when the services are made, so they are no strings.

_service = bentoml.service(
    workers=1, metrics={"enabled": False}, logging={"access": {"enabled": False}}
)


@_service
class Features:
    """The features of a row."""

    def __init__(self) -> None:
        """Unpickle the step."""
        self.model = read(sys.argv[1]).features

    @bentoml.api  # type: ignore[untyped-decorator]  # the library is in an environment of its own
    async def transform(self, row: list[float]) -> np.ndarray:
        """Ask the step, on the loop: a thread for each call would cost more than the call."""
        return np.asarray(self.model.transform([row]))


@_service
class Linear:
    """The linear model."""

    def __init__(self) -> None:
        """Unpickle it."""
        self.model = read(sys.argv[1]).linear

    @bentoml.api  # type: ignore[untyped-decorator]  # as above
    async def probability(self, features: np.ndarray) -> float:
        """Ask the model, as above."""
        return float(self.model.predict_proba(features)[0, 1])


@_service
class Trees:
    """The model of trees."""

    def __init__(self) -> None:
        """Unpickle it."""
        self.model = read(sys.argv[1]).trees

    @bentoml.api  # type: ignore[untyped-decorator]  # as above
    async def probability(self, features: np.ndarray) -> float:
        """Ask the model, as above."""
        return float(self.model.predict_proba(features)[0, 1])


@_service
class Decide:
    """What clients call."""

    features: Any = bentoml.depends(Features)
    linear: Any = bentoml.depends(Linear)
    trees: Any = bentoml.depends(Trees)

    @bentoml.api(route="/predict")  # type: ignore[untyped-decorator]  # as above
    async def predict(self, row: list[float]) -> dict[str, Any]:
        """Ask the steps: the models both at once, on what the features' step gives."""
        features = await self.features.transform(row=row)
        models = (self.linear, self.trees)
        both = await asyncio.gather(*(each.probability(features=features) for each in models))
        return answer(combined(*both))


if __name__ == "__main__":
    # uvloop and httptools are installed beside it, and uvicorn takes them.
    application = Decide.to_asgi()  # type: ignore[attr-defined]  # the decorator makes it a service
    uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
