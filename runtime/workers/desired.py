"""What should be registered: for each name its versions, and the one that answers.

It travels name by name, and always as a whole name: whoever gets one knows what to do, whatever
was there before. So a message that comes twice does no harm, and one that was missed is made up
for by the next one for that name, or by all names at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Version:
    """A plan in a file; `serial` is another one each time something is registered."""

    serial: int
    path: str
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Name:
    """An endpoint's versions; the empty one is of an endpoint that should not be there."""

    versions: Mapping[str, Version] = field(default_factory=dict)
    current: str = ""

    def having(self, version: str, plan: Version, *, activate: bool) -> Name:
        """With a version more, or with another plan for it."""
        takes = activate or not self.versions
        return Name({**self.versions, version: plan}, version if takes else self.current)

    def answering(self, version: str) -> Name:
        """With another version in service."""
        return replace(self, current=version)

    def without(self, version: str) -> Name:
        """With a version less."""
        left = {key: plan for key, plan in self.versions.items() if key != version}
        return Name(left, self.current if self.current in left else next(iter(left), ""))

    def to_json(self) -> dict[str, Any]:
        """As it goes through a channel."""
        return {
            "current": self.current,
            "versions": {
                key: [plan.serial, plan.path, dict(plan.notes)]
                for key, plan in self.versions.items()
            },
        }

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Name:
        """As it came through a channel."""
        return cls(
            {key: Version(*parts) for key, parts in data["versions"].items()}, data["current"]
        )


NOTHING = Name()
