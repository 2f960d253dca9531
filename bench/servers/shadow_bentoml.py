"""BentoML with a champion and its shadow: a service for each, which the one for clients depends on.

One worker on uvicorn without the supervisor, as for graphs, so services call each other in the
process.
"""

import asyncio
import sys
from typing import Any

import bentoml
import uvicorn

from bench.servers.shadow_parts import SHADOWED, answer, probability, read

# Annotations here are read when the services are made, so they are no strings.

_service = bentoml.service(
    workers=1, metrics={"enabled": False}, logging={"access": {"enabled": False}}
)


@_service
class Champion:
    """The pipeline that answers."""

    def __init__(self) -> None:
        """Unpickle it."""
        self.model = read(sys.argv[1]).champion

    @bentoml.api  # type: ignore[untyped-decorator]  # the library is in an environment of its own
    async def ask(self, row: list[float]) -> float:
        """Ask it, on the loop: a thread for each call would cost more than the call."""
        return probability(self.model, row)


@_service
class Shadow:
    """The pipeline that is compared."""

    def __init__(self) -> None:
        """Unpickle it."""
        self.model = read(sys.argv[1]).shadow

    @bentoml.api  # type: ignore[untyped-decorator]  # as above
    async def ask(self, row: list[float]) -> float:
        """Ask it, as above."""
        return probability(self.model, row)


@_service
class Front:
    """What clients call."""

    champion: Any = bentoml.depends(Champion)
    shadow: Any = bentoml.depends(Shadow)

    def __init__(self) -> None:
        """Nothing is in progress yet."""
        self.asked: set[asyncio.Task[Any]] = set()

    @bentoml.api(route="/predict")  # type: ignore[untyped-decorator]  # as above
    async def predict(self, row: list[float]) -> dict[str, Any]:
        """Answer as the champion, and have the shadow asked after that."""
        found = await self.champion.ask(row=row)
        if sys.argv[2] == SHADOWED:
            task = asyncio.create_task(self.shadow.ask(row=row))
            self.asked.add(task)
            task.add_done_callback(self.asked.discard)
        return answer(found)


if __name__ == "__main__":
    # uvloop and httptools are installed beside it, and uvicorn takes them.
    application = Front.to_asgi()  # type: ignore[attr-defined]  # the decorator makes it a service
    uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[3]), log_level="warning")
