"""Bodies that a cluster sends its clients, at `GET /v2/cluster` and as answers."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec

from runtime.errors import ClusterError, RefusedRows

PATH = "/v2/cluster"
HOMES = "/v2/cluster/homes"


class MemberState(msgspec.Struct):
    """A replica."""

    number: int
    url: str
    state: str
    """ready, leaving, loading, spare or lost: only those that are ready should be asked."""
    process: int = 0
    node: str = ""
    generation: int = -1
    """The last change of models and routes that it has followed."""


class Roster(msgspec.Struct):
    """The replicas; `number` rises with each change."""

    number: int
    replicas: list[MemberState]
    generation: int = 0
    """The last change of models and routes that all replicas were sent."""
    front: str = ""
    """An address that waits for a replica where there is none, and passes requests on."""
    homes: int = 0
    """The number of the homes of models, see `Homes`; 0 where all replicas are alike."""

    def ready(self) -> list[MemberState]:
        """The replicas that answer."""
        return [each for each in self.replicas if each.state == "ready"]


class Homes(msgspec.Struct):
    """The replicas to ask first for a model; `number` rises with each change."""

    number: int = 0
    models: dict[str, list[int]] = {}
    """The numbers of replicas by model; for one that is missing they are all the same."""


class ReplicaAnswer(NamedTuple):
    """An answer, and who gave it."""

    status: int
    headers: dict[str, str]
    body: bytes
    url: str

    def value(self) -> Any:
        """The JSON of a good answer; ClusterError with what the replica said otherwise."""
        if self.status == 200:
            return json.loads(self.body)
        refused = RefusedRows if self.status in {400, 413, 422} else ClusterError
        raise refused(
            "a replica refused this", where=self.url, found=f"{self.status}: {self.body[:500]!r}"
        )
