"""The options of workers, passed at their start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from runtime.http.wire.settings import ServerSettings
from runtime.service.engines import check_options


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options that all workers share."""

    settings: ServerSettings = field(default_factory=ServerSettings)
    executors: int | None = None
    """Threads of each worker for blocks of rows."""
    memory_budget: int | None = None
    """For the plans of each worker, in bytes."""
    store: str | None = None
    """The directory of the object store that all of them share."""
    owner: str = "worker"
    """Prefix of owners in the store; differs between servers that share a store."""
    trust_code: bool = False
    """True if machine code in the files of plans is used."""
    allow_python: Sequence[str] = ()
    """The modules that coroutines of graphs are imported from."""
    private: str | None = None
    """A directory that the last worker removes, where the supervisor cannot do so any more."""

    def __post_init__(self) -> None:
        check_options(self.executors, self.memory_budget, self.trust_code, self.allow_python)

    def to_json(self) -> dict[str, Any]:
        """Plain data of it, for a channel."""
        data = asdict(self)
        if not self.allow_python:  # a worker of a former release does not know it
            del data["allow_python"]
        return data

    @classmethod
    def of_json(cls, data: dict[str, Any]) -> WorkerOptions:
        """From plain data of a channel."""
        return cls(**(data | {"settings": ServerSettings(**data["settings"])}))
