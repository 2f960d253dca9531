"""A memory budget: more plans are registered than fit, those in use are there.

What is dropped is a plan with its tables and its maps of files; it stays registered, and the next
request brings it back from its file: the one it was registered from, or one it is written to when
it is dropped for the first time. Which one goes is decided by GreedyDual-Size: a plan is worth
keeping for the seconds that loading it takes, for each byte it occupies, and its worth ages. Plans
that executors work on are not dropped, and a call on its way keeps what it has taken.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from heapq import heapify, heappop, heappush
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import NamedTuple

import oven
from flour.core.errors import FlourError
from objectstore import MemoryStore, StoreError
from oven import Plan
from oven.run.native_run import NativeRun
from runtime.errors import LostPlan
from runtime.service.catalog import Catalog
from runtime.service.version import ModelVersion
from scheduler import Histogram, Latency

#: What a plan takes besides its parameters: objects, tables, code text. Measured: see
#: docs/reference/runtime.md.
PLAN_BYTES = 4 << 10
NODE_BYTES = 1536
#: Loading takes about this long at least, or as long as that where it was not measured yet.
LEAST_SECONDS = 1e-3
#: Plans with more parameters than this are served from the files of a store that has some.
MAPPED_BYTES = 64 << 10
_SLACK = 64


class MemoryStats(NamedTuple):
    """Figures of plans under the memory budget."""

    budget: int | None
    used: int
    """Bytes of parameters, each once, and of plans in memory; not counted without a budget."""
    resident: int
    dropped: int
    """Plans in memory now, and registered ones that are not."""
    evictions: int
    cold_hits: int
    cold: Latency
    """Seconds that requests waited for their plan to come back."""
    unwritable: int
    """Plans that could not be dropped, as they could not be written to a file."""


class _Spill(NamedTuple):
    """The directory for plans without a file, and the process that made it."""

    process: int = 0
    sweep_up: Callable[[], object] = bool  # does nothing, there is none yet
    path: Path = Path()


class _Resident:
    """A plan in memory: what it occupies, what it is worth."""

    __slots__ = ("bytes", "made", "parameters", "seconds", "seen", "version", "worth")

    def __init__(self, version: ModelVersion, plan: Plan, seconds: float) -> None:
        self.version: ModelVersion | None = version  # None once it has gone
        self.seconds = max(seconds, LEAST_SECONDS)
        every = (plan, *plan.variants.here)
        self.made = _made(plan)
        self.parameters = {
            item.digest: item.nbytes for one in every for item in one.program.resident()
        }
        self.bytes = PLAN_BYTES * len(every) + sum(map(_object_bytes, every))
        self.seen = version.counts.inline.value + version.counts.batch.value
        self.worth = 0.0


def _made(plan: Plan) -> tuple[int, int, int]:
    """The numbers of plans and programs, and the bytes of native code."""
    every = (plan, *plan.variants.here)
    return (
        len(every),
        sum(one.program.in_memory for one in every),
        sum(one.code.tier for one in every),
    )


def _object_bytes(plan: Plan) -> int:
    """The bytes of a plan's program and its tables."""
    steps = plan.code.steps if plan.code.tier else ()
    tables = sum(step.table_bytes for step in steps if isinstance(step, NativeRun))
    if not plan.program.in_memory:
        return tables + NODE_BYTES * len(plan.program.held)
    inside = plan.program.optimised.nodes()
    nodes = len(inside) + len(plan.flow.nodes())
    return tables + NODE_BYTES * nodes + sum(item.op.held_bytes() for item in inside)


class Residency:
    """The plans in memory."""

    def __init__(self, budget: int | None, catalog: Catalog, spill: Path | None = None) -> None:
        self.budget, self._catalog = budget, catalog
        self._spill, self._spill_in = _Spill(), spill
        #: Who else keeps something of a plan that is dropped.
        self.on_drop: Callable[[ModelVersion], None] = lambda _: None
        self._lock = threading.Lock()
        self._residents: dict[ModelVersion, _Resident] = {}
        self._heap: list[tuple[float, int, _Resident]] = []
        self._pushes = 0
        self._holders: dict[str, int] = {}
        self._used = 0
        self._age = 0.0
        self._evictions = self._unwritable = self._spilled = 0
        self._cold = Histogram()

    # --- coming ------------------------------------------------------------------------------

    def admit(self, version: ModelVersion, plan: Plan, seconds: float) -> None:
        """A plan has come into memory; loading it takes so long."""
        if self.budget is None:
            return
        with self._lock:
            if not version.residence.retired:
                self._account(_Resident(version, plan, seconds))
            self._shrink(version)

    def rebook(self, version: ModelVersion) -> None:
        """A plan may have made others since it came, for data of another float width."""
        plan = version.plan
        if self.budget is None or plan is None:
            return
        with self._lock:
            one = self._residents.get(version)
            if one is not None and one.made != _made(plan):
                self._remove(one)
                self._account(_Resident(version, plan, one.seconds))
                self._shrink(version)

    def _account(self, one: _Resident) -> None:
        if one.version is None or one.version in self._residents:
            return
        self._residents[one.version] = one
        self._used += one.bytes
        for digest, nbytes in one.parameters.items():
            holders = self._holders.get(digest, 0)
            self._holders[digest] = holders + 1
            self._used += 0 if holders else nbytes
        self._push(one)

    def _push(self, one: _Resident) -> None:
        size = one.bytes + sum(
            nbytes / self._holders[digest] for digest, nbytes in one.parameters.items()
        )
        one.worth = self._age + one.seconds / size
        self._pushes += 1
        heappush(self._heap, (one.worth, self._pushes, one))

    def take(self, version: ModelVersion, *, pin: bool = False) -> Plan:
        """The version's plan, brought back if it was dropped, and pinned if asked."""
        plan_in_memory = version.plan
        if plan_in_memory is not None and not pin:
            return plan_in_memory
        seconds = 0.0
        with version.residence.lock:
            plan = version.plan
            if plan is None:
                start = time.perf_counter()
                plan = self._load(version)
                self._catalog.hold(version, plan)
                version.residence.plan = plan
                version.open()
                seconds = time.perf_counter() - start
            version.residence.pins += pin
        if seconds:
            self.admit(version, plan, seconds)
            with self._lock:
                self._cold.record(seconds)
        return plan

    def _load(self, version: ModelVersion) -> Plan:
        path = version.residence.path
        store = self._catalog.store
        try:
            assert path is not None, "what was dropped was written before"
            plan = oven.load(
                path, store=None if isinstance(store, MemoryStore) else store, background=False
            )
        except (OSError, FlourError, StoreError) as problem:
            raise LostPlan(
                "a plan that was dropped for memory cannot be brought back",
                where=str(path),
                found=str(problem).splitlines()[0],
                hint=f"register {version.name!r} again",
            ) from problem
        if plan.digest != version.digest:
            raise LostPlan(
                "the file of a plan has become another program",
                where=str(path),
                found=repr(plan),
                hint="register it as a new version; do not replace files of registered plans",
            )
        return plan

    # --- going -------------------------------------------------------------------------------

    def _shrink(self, newest: ModelVersion) -> None:
        """Drop what is worth least until the rest is within the budget; never what just came."""
        assert self.budget is not None
        busy: list[_Resident] = []
        while self._used > self.budget and self._heap:
            worth, _, one = heappop(self._heap)
            version = one.version
            if version is None:
                continue
            seen = version.counts.inline.value + version.counts.batch.value
            if seen != one.seen:  # it was called since: it is worth its load again
                one.seen = seen
                self._push(one)
            elif version is not newest and self._drop(version):
                self._age = max(self._age, worth)
                self._evictions += 1
                self._remove(one)
            else:
                busy.append(one)
        for one in busy:
            self._push(one)

    def _drop(self, version: ModelVersion) -> bool:
        """Drop a plan unless it is in use or has no file; return whether it was."""
        if not version.residence.lock.acquire(blocking=False):
            return False
        try:
            if version.residence.pins or not self._on_file(version):
                return False
            version.drop()
            self.on_drop(version)
            if isinstance(self._catalog.store, MemoryStore):
                self._catalog.let_go(version)
            return True
        finally:
            version.residence.lock.release()

    def _on_file(self, version: ModelVersion) -> bool:
        """True if the plan can be had again; it is written to a file if there is none."""
        if version.residence.path is not None or version.plan is None:
            return True
        path = self._write(version.plan)
        if path is None:
            return False
        self.own(version, path)
        return True

    def _write(self, plan: Plan) -> Path | None:
        """A new file of a plan; None if it cannot be written."""
        try:
            self._spilled += 1
            path = self._directory() / f"{self._spilled}.pretzel"
            plan.save(path, durable=False)
        except (OSError, FlourError):
            self._unwritable += 1
            return None
        return path

    def own(self, version: ModelVersion, path: Path) -> None:
        """A file was written here for this version, and goes with it."""
        version.residence.path = path
        # Requests that were accepted may still bring the plan back; later ones cannot.
        weakref.finalize(version, _unlink, path, os.getpid()).atexit = False

    def mapped(self, plan: Plan, *, background: bool | None) -> tuple[Plan, Path | None]:
        """The plan on the store's files, which all processes share, and its own file.

        A plan that was made here has its parameters in this process' memory. Small ones are not
        worth the files; in a store without files, or where none can be written, it stays as it is.
        """
        store = self._catalog.store
        size = sum(item.nbytes for item in plan.program.resident())
        if isinstance(store, MemoryStore) or size < MAPPED_BYTES:
            return plan, None
        with self._lock:
            path = self._write(plan)
        if path is None:
            return plan, None
        try:
            return oven.load(path, store=store, background=background), path
        except (OSError, FlourError, StoreError):
            _unlink(path, os.getpid())
            return plan, None

    def _directory(self) -> Path:
        """The folder for this runtime's plans: no other process uses its names."""
        if self._spill.process != os.getpid():
            if self._spill_in is not None:
                self._spill_in.mkdir(parents=True, exist_ok=True)
            directory = Path(mkdtemp(prefix="pretzel-", dir=self._spill_in))
            # Also where the runtime is not closed.
            self._spill = _Spill(
                os.getpid(), weakref.finalize(self, _remove, directory, os.getpid()), directory
            )
        self._spill.path.mkdir(parents=True, exist_ok=True)
        return self._spill.path

    def _remove(self, one: _Resident) -> None:
        assert one.version is not None, "it is removed once"
        del self._residents[one.version]
        one.version = None
        self._used -= one.bytes
        for digest, nbytes in one.parameters.items():
            self._holders[digest] -= 1
            if not self._holders[digest]:
                del self._holders[digest]
                self._used -= nbytes

    def forget(self, version: ModelVersion) -> None:
        """A version was unregistered."""
        with self._lock:
            one = self._residents.get(version)
            if one is not None:
                self._remove(one)
            if len(self._heap) > 2 * len(self._residents) + _SLACK:  # most of it has gone
                self._heap = [entry for entry in self._heap if entry[2].version is not None]
                heapify(self._heap)

    def close(self) -> None:
        """Forget everything; remove the files that were written here."""
        with self._lock:
            self._residents.clear()
            self._heap.clear()
            self._holders.clear()
            self._used = 0
        self._spill.sweep_up()

    def stats(self, registered: int) -> MemoryStats:
        """Figures of plans under the memory budget."""
        with self._lock:
            resident = registered if self.budget is None else len(self._residents)
            cold = self._cold.summary()
            return MemoryStats(
                budget=self.budget,
                used=self._used,
                resident=resident,
                dropped=max(0, registered - resident),
                evictions=self._evictions,
                cold_hits=cold.count,
                cold=cold,
                unwritable=self._unwritable,
            )


def _unlink(path: Path, process: int) -> None:
    if process == os.getpid():  # what a process wrote is not its child's to remove
        with suppress(OSError):
            path.unlink()


def _remove(path: Path, process: int) -> None:
    if process == os.getpid():
        rmtree(path, ignore_errors=True)
