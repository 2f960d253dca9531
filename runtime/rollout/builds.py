"""The builds of a rollout: counts of one say nothing about another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runtime.rollout.owner import Owner


class Builds:
    """The digests of what answers under some addresses, from the first look at them on."""

    def __init__(self, addresses: Iterable[str], data: Mapping[str, Any] | None) -> None:
        former = {} if data is None else data.get("builds", {})
        self._former = {str(each): dict(build) for each, build in former.items()}
        self.known: dict[str, dict[str, str]] = {each: {} for each in addresses}

    def other(self, owner: Owner) -> str:
        """Why one is not what it was; empty where all are."""
        for address, known in self.known.items():
            build, former = dict(owner.build(address)), self._former.pop(address, {})
            self.known[address] = known or build
            both = former.keys() & build.keys()
            # Of a former process one digest is enough: a release may have its own for plans.
            is_other = both and all(former[name] != build[name] for name in both)
            if is_other or build != self.known[address] or not build:
                return f"{address} {'was replaced meanwhile' if build else 'is not loaded'}"
        return ""
