"""What a worker is told when it begins."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from runtime.http.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Options:
    """What all workers have in common."""

    settings: ServerSettings = field(default_factory=ServerSettings)
    executors: int | None = None
    """Threads of each worker for blocks of rows."""
    memory_budget: int | None = None
    """For the plans of each worker, in bytes."""
    store: str | None = None
    """The directory of the object store that all of them share."""
    owner: str = "worker"
    """What owners in the store begin with; servers that share a store have different ones."""
    private: str | None = None
    """A directory that the last worker removes, where the supervisor cannot do so any more."""

    def to_json(self) -> dict[str, Any]:
        """As it goes through a channel."""
        return asdict(self)

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> Options:
        """As it came through a channel."""
        return cls(**(data | {"settings": ServerSettings(**data["settings"])}))
