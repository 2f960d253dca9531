"""The desired state: for each name its versions, and which of them answers.

Messages contain the complete state of a name, so that it can be applied in any previous state. A
repeated message does no harm, and a missed one is corrected by the next message for that name, or
by a message with all names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Version:
    """A plan in a file; `serial` differs for each registration."""

    serial: int
    path: str
    notes: Mapping[str, Any] = field(default_factory=dict)
    needs: Sequence[str] = ()
    """The addresses of the models that a graph names; workers find them in it."""


@dataclass(frozen=True, slots=True)
class Name:
    """An endpoint's versions; without versions the endpoint should not exist."""

    versions: Mapping[str, Version] = field(default_factory=dict)
    current: str = ""
    route: str = ""
    """Its route and the history of that, as in `endpoint.toml`; without one `current` answers."""
    muted: str = ""
    """Why nothing answers under the name until its route can be read; else empty."""
    counted: Mapping[str, Any] = field(default_factory=dict)
    """Each worker's counts of its requests, for a rollout; empty where there is none."""
    compared: bool = False
    """True if each worker compares what a shadow answers."""

    def having(self, version: str, plan: Version, *, activate: bool) -> Name:
        """With a new version, or another plan for an existing one."""
        current = version if activate or not self.versions else self.current
        return replace(self, versions={**self.versions, version: plan}, current=current)

    def answering(self, version: str) -> Name:
        """With another version in service."""
        return replace(self, current=version)

    def without(self, version: str) -> Name:
        """Without a version."""
        left = {key: plan for key, plan in self.versions.items() if key != version}
        if not left:
            return NOTHING
        current = self.current if self.current in left else next(iter(left))
        return replace(self, versions=left, current=current)

    def to_json(self) -> dict[str, Any]:
        """Plain data of it, for a channel."""
        return {
            "current": self.current,
            "route": self.route,
            "muted": self.muted,
            "counted": dict(self.counted),
            "compared": self.compared,
            "versions": {
                key: [plan.serial, plan.path, dict(plan.notes)]
                for key, plan in self.versions.items()
            },
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Name:
        """From plain data of a channel."""
        return cls(
            {key: Version(*parts) for key, parts in data["versions"].items()},
            *(data["current"], data["route"], data["muted"], data["counted"], data["compared"]),
        )


NOTHING = Name()
