"""Homes: which replicas are asked first for a model.

Every replica can answer for every model, and has in memory those that it is asked for. So what a
node holds is decided by who is asked: models whose parameters or code are the same have their homes
on the same nodes, within a bound on each node's requests, and models with many requests on several.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from hashlib import blake2b

from objectstore import Archive, StoreError
from runtime.cluster.hashing import Assignment, assign
from runtime.cluster.serving.bodies import Homes
from runtime.service.memory import PLAN_BYTES
from runtime.workers.desired import Name

#: Seconds between two looks at who is asked for what.
EVERY = 5.0
#: Seconds after which a request counts half.
_HALF_LIFE = 60.0
#: What the native code of a structure takes in a process, about.
CODE_BYTES = 1 << 16
#: Homes are decided again when this part of all requests goes to other models than before.
_DRIFT = 0.1
#: Deciding takes at most this part of the time of one processor.
_SHARE = 0.05
#: A parameter in the description of a program.
_DIGEST = re.compile(r'"[0-9a-f]{32}"')


class Placing:
    """Decides homes again when models, nodes or requests have changed; in the background."""

    def __init__(
        self,
        names: Callable[[], Mapping[str, Name]],
        changed: Callable[[Homes], object],
        budget: int | None = None,
    ) -> None:
        """`names` are the models as all replicas should have them; `changed` is told new homes.

        Nodes with room in their `budget` of bytes are taken first.
        """
        self._names, self._changed, self._budget = names, changed, budget
        self._lock = threading.Lock()
        self._heat: dict[str, float] = {}
        self._cooled = time.monotonic()
        self._sizes: dict[int, dict[str, int]] = {}
        self._assignment: Assignment | None = None
        self._placed: dict[str, float] = {}
        self._key: object = None
        self._due, self._busy = 0.0, False
        self.homes = Homes()

    def count(self, requests: Mapping[str, int]) -> None:
        """Note requests by model."""
        with self._lock:
            for name, number in requests.items():
                self._heat[name] = self._heat.get(name, 0.0) + number

    def look(self, generation: int, nodes: Mapping[str, list[int]], pool: Executor) -> None:
        """Decide again if there is a reason to; `nodes` are the numbers of their replicas."""
        now, key = time.monotonic(), (generation, sorted(nodes.items()))
        if self._busy or now < self._due or (key == self._key and now < self._cooled + EVERY):
            return
        if len(nodes) < 2:
            if self._key is not None and self.homes.models:
                self._tell({})
            self._key, self._assignment = None, None
            return
        self._busy = True
        pool.submit(self._decide, key, dict(nodes))

    def _decide(self, key: object, nodes: dict[str, list[int]]) -> None:
        began = time.monotonic()
        try:
            heat = self._cool()
            if key == self._key and not self._drifted(heat):
                return
            resident = self._resident()
            known = {name: 1.0 + heat.get(name, 0.0) for name in resident}
            self._assignment = found = assign(
                resident, nodes, loads=known, budget=self._budget, before=self._assignment
            )
            self._key, self._placed = key, known
            self._tell(
                {
                    name: [number for node in found.nodes_of(name) for number in nodes[node]]
                    for name in resident
                    if len(found.nodes_of(name)) < len(nodes)
                }
            )
        finally:
            self._due = time.monotonic() + (time.monotonic() - began) / _SHARE
            self._busy = False

    def _tell(self, models: dict[str, list[int]]) -> None:
        if models != self.homes.models:
            # The next controller's numbers are greater, too, unless the clock was set back.
            self.homes = Homes(max(time.time_ns(), self.homes.number + 1), models)
            self._changed(self.homes)

    def _cool(self) -> dict[str, float]:
        """The requests by model, the older the less."""
        now = time.monotonic()
        with self._lock:
            factor = 0.5 ** ((now - self._cooled) / _HALF_LIFE)
            self._cooled = now
            heat = {name: old * factor for name, old in self._heat.items()}
            self._heat = {name: value for name, value in heat.items() if value > 0.01}
            return dict(self._heat)

    def _drifted(self, heat: Mapping[str, float]) -> bool:
        now = {name: 1.0 + heat.get(name, 0.0) for name in self._placed}
        before, after = sum(self._placed.values()), sum(now.values())
        apart = sum(abs(now[name] / after - was / before) for name, was in self._placed.items())
        return apart / 2 > _DRIFT

    def _resident(self) -> dict[str, dict[str, int]]:
        """The digests and bytes of each model's parameters, all of its versions together."""
        sizes: dict[int, dict[str, int]] = {}
        found: dict[str, dict[str, int]] = {}
        for name, wanted in self._names().items():
            merged = found.setdefault(name, {})
            for version in wanted.versions.values():
                known = self._sizes.get(version.serial)
                sizes[version.serial] = known if known is not None else sizes_in(version.path)
                merged.update(sizes[version.serial])
        self._sizes = sizes
        return found


def sizes_in(path: str) -> dict[str, int]:
    """The bytes of a plan's parameters, its structure and itself, by digest; none if it is gone."""
    try:
        with Archive.open(path, verify=False) as archive:
            found = {digest: archive.nbytes(digest) for digest in archive.digests()}
            nodes = archive.manifest.get("nodes")
            shape = _DIGEST.sub("", json.dumps(nodes))
            found[f"structure {blake2b(shape.encode(), digest_size=16).hexdigest()}"] = CODE_BYTES
            found[f"plan {path}"] = PLAN_BYTES
            return found
    except (OSError, StoreError):
        return {}
