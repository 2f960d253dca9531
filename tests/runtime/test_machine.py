"""A runtime against a model: random histories, calls from several threads, nothing lost or leaked.

The model is a dictionary: for each endpoint its versions, the one in service, and by how much each
moves its data. Calls are made by threads while the history goes on; each must get an answer of a
version that was in service between its start and its end, or the error that the history explains.
"""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oven.plans.plan import Plan
from runtime import Runtime
from runtime.errors import InService, UnknownEndpoint
from scheduler import DeadlineExceeded, Overloaded, QueueRules
from tests.runtime.plans import WIDTH, offset_of, shift

NAMES = ("a", "b")
ENGINES = (None, "inline", "batch")
DATA = np.arange(30.0 * WIDTH).reshape(30, WIDTH)
BUDGET = 45_000  # three plans or so

names = st.sampled_from(NAMES)
engines = st.sampled_from(ENGINES)


class Asked:
    """A call on its way: what may come of it."""

    def __init__(self, machine: RuntimeMachine, name: str, data: Any) -> None:
        self.name, self.data = name, data
        self.first = len(machine.eras[name]) - 1
        self.future: Future[Any] | None = None
        self.may_expire = self.cancelled = False

    def check(self, machine: RuntimeMachine) -> None:
        """The answer is of a version that was in service meanwhile; errors are explained."""
        assert self.future is not None
        allowed = machine.eras[self.name][self.first :]
        try:
            found: float | None = offset_of(self.future.result(60), self.data)
        except UnknownEndpoint:
            found = None
        except DeadlineExceeded:
            assert self.may_expire
            return
        except Overloaded:
            return
        except CancelledError:
            assert self.cancelled
            return
        assert found in allowed, (found, allowed)
        machine.answered += 1


class RuntimeMachine(RuleBasedStateMachine):
    """Histories of a runtime with little memory and few places in its queue."""

    @initialize(with_spill=st.booleans())
    def start(self, *, with_spill: bool) -> None:
        gc.collect()
        self.plans_before = {id(each) for each in gc.get_objects() if type(each) is Plan}
        self.threads_before = threading.active_count()
        self.directory = TemporaryDirectory()
        self.runtime = Runtime(
            executors=2,
            memory_budget=BUDGET,
            spill=self.directory.name if with_spill else None,
            rules=QueueRules(jobs=8),
        )
        self.callers = ThreadPoolExecutor(3)
        self.versions: dict[str, dict[str, float]] = {name: {} for name in NAMES}
        self.current: dict[str, str] = {}
        #: What each endpoint has answered with, over time; None where there was none.
        self.eras: dict[str, list[float | None]] = {name: [None] for name in NAMES}
        self.asked: list[Asked] = []
        self.offsets = 0.0
        self.answered = 0
        for name in ("a", "a", "b"):
            self.register(name, activate=True, file=False, reserve=False)

    def _now(self, name: str) -> float | None:
        current = self.current.get(name)
        return None if current is None else self.versions[name][current]

    # --- the history ---------------------------------------------------------------------------

    @rule(name=names, activate=st.booleans(), file=st.booleans(), reserve=st.booleans())
    def register(self, name: str, *, activate: bool, file: bool, reserve: bool) -> None:
        if len(self.versions[name]) > 4:
            return
        self.offsets += 1.0
        source: Any = shift(self.offsets)
        if file:
            path = Path(self.directory.name) / f"{name}-{self.offsets}.plan"
            source.save(path)
            source = path
        goes = activate or not self.versions[name]
        if goes:  # from its start on a call may see either
            self.eras[name].append(self.offsets)
        version = self.runtime.register(name, source, activate=activate, reserve=reserve)
        assert version not in self.versions[name]
        self.versions[name][version] = self.offsets
        if goes:
            self.current[name] = version

    @rule(name=names, pick=st.integers(0, 9))
    def switch(self, name: str, pick: int) -> None:
        versions = list(self.versions[name])
        if not versions:
            return
        others = [each for each in versions if each != self.current[name]] or versions
        version = others[pick % len(others)]
        self.eras[name].append(self.versions[name][version])
        self.runtime.switch(name, version)
        self.current[name] = version

    @rule(name=names, sure=st.integers(0, 3))
    def unregister(self, name: str, sure: int) -> None:
        if not self.versions[name] or sure:
            return
        self.eras[name].append(None)
        self.runtime.unregister(name)
        self.versions[name].clear()
        del self.current[name]

    @rule(name=names, pick=st.integers(0, 9))
    def unregister_version(self, name: str, pick: int) -> None:
        versions = list(self.versions[name])
        if not versions:
            return
        version = versions[pick % len(versions)]
        alone = len(versions) == 1
        if alone and pick < 7:
            return
        if version == self.current[name] and not alone:
            try:
                self.runtime.unregister(name, version)
            except InService:
                return
            raise AssertionError("the version in service was taken out")
        if alone:
            self.eras[name].append(None)
            del self.current[name]
        self.runtime.unregister(name, version)
        del self.versions[name][version]

    @rule()
    def squeeze(self) -> None:
        """Everything that can be dropped is."""
        self.runtime._memory.budget = 1
        self.runtime.register("squeeze", shift(-1.0))
        self.runtime._memory.budget = BUDGET
        self.runtime.unregister("squeeze")

    # --- calls ---------------------------------------------------------------------------------

    @rule(name=names, engine=engines, rows=st.sampled_from([0, 1, 30]))
    def ask(self, name: str, engine: str | None, rows: int) -> None:
        """A thread calls and waits."""
        data = DATA[rows] if rows == 0 else DATA[:rows]
        asked = Asked(self, name, data)
        asked.future = self.callers.submit(self.runtime.predict, name, data, engine=engine)
        self.asked.append(asked)

    @rule(name=names, engine=engines, timeout=st.sampled_from([None, 0.0, 1e-4, 30.0]))
    def submit(self, name: str, engine: str | None, timeout: float | None) -> None:
        """This thread does not wait."""
        asked = Asked(self, name, DATA)
        try:
            asked.future = self.runtime.submit(name, DATA, engine=engine, timeout=timeout)
        except UnknownEndpoint:
            assert self._now(name) is None
            return
        except Overloaded:
            return
        asked.may_expire = timeout is not None and timeout < 1
        self.asked.append(asked)

    @rule(name=names, engine=engines)
    def fail(self, name: str, engine: str | None) -> None:
        """Data that no plan takes is that call's error only."""
        if self._now(name) is None:
            return
        try:
            self.runtime.predict(name, np.zeros((3, WIDTH + 1)), engine=engine)
        except ValueError:
            return
        except Overloaded:
            return
        raise AssertionError("rows of a wrong width were answered")

    @rule(pick=st.integers(0, 99))
    def cancel(self, pick: int) -> None:
        if self.asked:
            asked = self.asked[pick % len(self.asked)]
            assert asked.future is not None
            asked.cancelled |= asked.future.cancel()

    @rule()
    def settle(self) -> None:
        """All answers are in, and right."""
        for asked in self.asked:
            asked.check(self)
        self.asked.clear()

    # --- what holds at any time -----------------------------------------------------------------

    @invariant()
    def the_table_is_the_models(self) -> None:
        if not hasattr(self, "runtime"):
            return
        found = {each.name: (each.current, set(each.versions)) for each in self.runtime.endpoints}
        assert found == {
            name: (current, set(self.versions[name])) for name, current in self.current.items()
        }

    def teardown(self) -> None:
        if not hasattr(self, "runtime"):
            return
        try:
            self.settle()
            self._check_idle()
            self._check_budget()
        finally:
            self.callers.shutdown()
            assert self.runtime.close(timeout=60)
        self._check_nothing_is_left()
        self.directory.cleanup()

    def _check_idle(self) -> None:
        until = time.monotonic() + 30
        while True:
            stats = self.runtime.stats()
            batch = stats.batch
            done = batch is None or (
                batch.submitted == batch.done + batch.failed + batch.expired + batch.cancelled
                and not batch.buffers.in_use
            )
            pins = sum(each.residence.pins for each in self.runtime.endpoints.all())
            gc.collect()
            alive = stats.catalog.versions == len(stats.versions)
            if done and not pins and alive:
                return
            assert time.monotonic() < until, (batch, pins, stats.catalog)
            time.sleep(0.005)

    def _check_budget(self) -> None:
        """What is booked is what is there."""
        memory = self.runtime._memory
        used = sum(one.bytes for one in memory._residents.values())
        parameters = {d: n for one in memory._residents.values() for d, n in one.parameters.items()}
        assert self.runtime.stats().memory.used == used + sum(parameters.values())
        resident = {each.owner for each in self.runtime.endpoints.all() if each.plan is not None}
        assert resident == {each.owner for each in memory._residents}
        assert set(self.runtime.store.holdings()) >= resident
        open_ones = [
            each
            for each in self.runtime.endpoints.all()
            if each.entry.function or each.residence.opened
        ]
        assert {each.owner for each in open_ones} <= resident

    def _check_nothing_is_left(self) -> None:
        """No plan, no memory map, no thread of this history is left."""
        until = time.monotonic() + 30
        while True:
            gc.collect()
            plans = [
                each
                for each in gc.get_objects()
                if type(each) is Plan and id(each) not in self.plans_before
            ]
            maps = Path("/proc/self/maps").read_text(encoding="utf-8")
            left = (len(plans), maps.count(self.directory.name))
            threads = threading.active_count() - self.threads_before
            if left == (0, 0) and threads <= 1:  # one may have begun to compile in the background
                return
            assert time.monotonic() < until, (left, threads)
            time.sleep(0.01)


RuntimeMachine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=30, deadline=None, derandomize=True
)
TestRuntime = RuntimeMachine.TestCase
