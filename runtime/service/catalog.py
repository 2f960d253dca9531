"""The loaded stages and parameters: each stage once, parameters by owner, and who shares them.

A version's parameters are held in the object store under its owner's name ("fraud@3") until the
last request on it is over: then nothing refers to the version any more, which Python notices, and
the catalog lets the store know as soon as it is used again. It does not do so at once, because the
garbage collector may notice anywhere, also inside the store.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from objectstore import Store, StoreClosed
from oven import Plan
from runtime.service.version import ModelVersion


class CatalogStats(NamedTuple):
    """Figures of the loaded stages and parameters."""

    versions: int
    """Versions that are registered, or still answer requests they had accepted."""
    stages: int
    """Different physical stages of theirs."""
    stage_uses: int
    """Their number if each version had its own."""
    owners: int
    """Versions with parameters in the store."""


class Catalog:
    """Keeps account of versions from registration until their last request is over."""

    def __init__(
        self, store: Store, prefix: str = "", gone: Callable[[str], object] | None = None
    ) -> None:
        self.store, self._prefix = store, prefix
        self._gone = gone  # who else wants to know that an owner is there no more
        self._lock = threading.Lock()
        self._stages: dict[str, int] = {}
        self._known: dict[int, tuple[str, tuple[str, ...]]] = {}
        self._holding: dict[str, int] = {}  # owner to the number of the version that holds
        self._numbers = 0
        #: Versions that nothing refers to any more, to be let go of; see `sweep`.
        self.departed: deque[int] = deque()

    def admit(self, version: ModelVersion, plan: Plan) -> None:
        """A version comes: hold its parameters, count its stages."""
        stages = tuple(code for _, code in plan.program.stage_kinds if code is not None)
        with self._lock:
            self._numbers += 1
            number = self._numbers
            if version.owner in self._holding:  # requests still on their way to a former one
                self._release(version.owner)
            self.store.hold(self._prefix + version.owner, plan.program.resident())
            self._holding[version.owner] = number
            self._known[number] = (version.owner, stages)
            for stage in stages:
                self._stages[stage] = self._stages.get(stage, 0) + 1
        weakref.finalize(version, self.departed.append, number).atexit = False

    def hold(self, version: ModelVersion, plan: Plan) -> None:
        """Hold the parameters of a version that was brought back into memory."""
        with self._lock:
            if version.owner in self._holding:
                self.store.hold(self._prefix + version.owner, plan.program.resident())

    def let_go(self, version: ModelVersion) -> None:
        """Let go of the parameters of a version that is dropped from memory but registered."""
        with self._lock:
            if version.owner in self._holding:
                self._release(version.owner)

    def sweep(self) -> None:
        """Free the parameters of versions that no call refers to any more."""
        while self.departed:
            try:
                number = self.departed.popleft()
            except IndexError:
                return
            with self._lock:
                owner, stages = self._known.pop(number)
                if self._holding.get(owner) == number:  # and not a newer one of the same name
                    del self._holding[owner]
                    self._release(owner)
                    if self._gone is not None:
                        self._gone(owner)
                for stage in stages:
                    self._stages[stage] -= 1
                    if not self._stages[stage]:
                        del self._stages[stage]

    def stats(self) -> CatalogStats:
        """Figures of the loaded stages and parameters."""
        self.sweep()
        with self._lock:
            return CatalogStats(
                len(self._known), len(self._stages), sum(self._stages.values()), len(self._holding)
            )

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            for owner in self._holding:
                self._release(owner)
            self._holding.clear()

    def _release(self, owner: str) -> None:
        with suppress(StoreClosed):  # then it holds nothing for anybody
            self.store.release(self._prefix + owner)
