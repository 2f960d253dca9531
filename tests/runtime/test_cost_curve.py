"""Simulated machines: whatever calls cost, the default does as well as the better engine.

Nothing runs and nothing waits: costs, clock and executors are the tests' own. The rules are those
that serve: scheduler.choose, the curves and turns of Costs, and the ranges of a shared run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oven.run.helpers import Told
from runtime.service.costs import Costs
from runtime.service.sharing import range_rows
from runtime.service.version import Learned
from scheduler import Ask, Engine, Load, choose

Cost = Callable[[int], float]
CORES = 2
#: What a thread takes for a range besides the rows, and until a helper begins.
RANGE, WAKE = 10e-6, 50e-6


def linear(rows: int) -> float:
    return 5e-6 + rows * 1e-6


def big_fixed_part(rows: int) -> float:
    """All trees are read for each chunk, whatever its rows."""
    return 5e-3 + rows * 22e-6


def cache_step(rows: int) -> float:
    """What is larger than a cache takes three times as long per row."""
    return 5e-6 + rows * (1e-6 if rows <= 2000 else 3e-6)


COSTS = [linear, big_fixed_part, cache_step]


class Machine:
    """One caller, and executors that are idle otherwise."""

    def __init__(
        self,
        cost: Cost,
        *,
        gil: bool = False,
        noise: float = 0.0,
        loading: float = 0.0,
        native: bool = False,
    ) -> None:
        self.cost, self.gil, self._noise, self.native = cost, gil, noise, native
        self._loading = loading  # what the first call that is not divided takes besides
        self.now, self._random = 0.0, random.Random(0)
        self.costs = Costs(lambda: self.now)
        self.version: Any = SimpleNamespace(owner="k", learned=Learned(), grows=False)

    def call(self, rows: int, callers: int = 1) -> float:
        """The time of a call by the default; time passes, and the call is learned from."""
        ask = Ask(
            rows,
            self.costs.curve(self.version, rows),
            inline_callers=callers - 1,
            cores=CORES,
            native=self.native,
            gain=self.costs.gain(self.version),
            explore=self.costs.explore(self.version),
        )
        decision = choose(ask, Load(CORES, CORES))
        if decision.engine is Engine.INLINE:
            taken = self.observed(rows, whole=True)
        else:
            threads = 1 + decision.helpers
            sizes = (decision.least_rows, decision.chunk_rows)
            work, taken = self.shared(rows, threads, *sizes)
            if self.native:
                told = Told(work, taken, 1, decision.helpers)
                self.costs.learn_together(self.version, rows, told, sampled=False)
            elif decision.helpers:
                self.costs.learn_gain(self.version, work / taken, threads)
        self.now += taken
        return taken

    def observed(self, rows: int, *, whole: bool = False) -> float:
        """The time of these rows on one thread, measured."""
        seconds = self.cost(rows)
        if whole:
            seconds, self._loading = seconds + self._loading, 0.0
        if self._noise and self._random.random() < self._noise:
            seconds *= 1 + 9 * self._random.random()
        self.costs.observe(self.version, rows, seconds)
        return self.cost(rows)

    def shared(self, rows: int, threads: int, least: int, most: int) -> tuple[float, float]:
        """The work and the time of a call with helpers."""
        ready = [20e-6] + [20e-6 + WAKE] * (threads - 1)
        left, work = rows, 0.0
        while left:
            size = range_rows(left, threads * (1 + self.native), least, most)
            first = ready.index(min(ready))
            seconds = self.observed(size)
            work, left = work + seconds, left - size
            ready[first] += (1e-6 if self.native else RANGE) + seconds * (
                threads if self.gil else 1
            )
        return work, max(ready)


def best(machine: Machine, rows: int) -> float:
    """What the better engine would take if all were known."""
    inline = machine.cost(rows)
    known = Machine(machine.cost, gil=machine.gil, native=machine.native)
    sizes = [max(1, rows >> shift) for shift in range(1, 12)]
    return min([inline, *(known.shared(rows, CORES, size, size)[1] for size in sizes)])


KINDS = [{}, {"gil": True}, {"native": True}]


@pytest.mark.parametrize("kind", KINDS, ids=["executors", "gil", "helpers"])
@pytest.mark.parametrize("rows", [1, 30, 1000, 10_000, 100_000])
@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: str(cost.__name__))
def test_the_default_does_as_well_as_the_better_engine(
    cost: Cost, rows: int, kind: dict[str, bool]
) -> None:
    machine = Machine(cost, **kind)
    for _ in range(300):
        machine.call(rows)
    taken = sum(machine.call(rows) for _ in range(200)) / 200
    assert taken <= 1.05 * best(machine, rows)


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: str(cost.__name__))
def test_learning_costs_little(cost: Cost) -> None:
    """The first calls, with all that is tried."""
    machine = Machine(cost)
    taken = sum(machine.call(10_000) for _ in range(100))
    assert taken <= 1.25 * 100 * best(machine, 10_000)


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: str(cost.__name__))
def test_noise_misleads_it_seldom(cost: Cost) -> None:
    """One measurement in ten is up to ten times too slow."""
    machine = Machine(cost, noise=0.1)
    for _ in range(100):
        machine.call(10_000)
    taken = sum(machine.call(10_000) for _ in range(200)) / 200
    assert taken <= 1.1 * best(machine, 10_000)


@pytest.mark.parametrize("ranges", [0, 1, 2])
@pytest.mark.parametrize("loading", [1e-3, 30e-3])
@pytest.mark.parametrize("rows", [100, 1000, 10_000])
@pytest.mark.parametrize("gil", [False, True], ids=["native", "gil"])
def test_loading_code_in_a_first_call_does_not_mislead_it(
    rows: int, loading: float, ranges: int, *, gil: bool
) -> None:
    """The first call that is not divided takes much longer than the next; so do some ranges."""
    machine = Machine(linear, gil=gil, loading=loading)
    for _ in range(ranges):
        machine.costs.observe(machine.version, rows // 2, linear(rows // 2) + loading)
    for _ in range(32):
        machine.call(rows)
    taken = sum(machine.call(rows) for _ in range(32)) / 32
    assert taken <= 1.1 * best(machine, rows)


@pytest.mark.parametrize(("before", "after"), [(big_fixed_part, linear), (linear, big_fixed_part)])
def test_a_change_is_followed(before: Cost, after: Cost) -> None:
    machine = Machine(before)
    for _ in range(100):
        machine.call(10_000)
    machine.cost, machine.now = after, machine.now + 120.0
    for _ in range(300):
        machine.call(10_000)
    taken = sum(machine.call(10_000) for _ in range(200)) / 200
    assert taken <= 1.05 * best(machine, 10_000)


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: str(cost.__name__))
def test_a_guess_from_tiny_chunks_does_not_last(cost: Cost) -> None:
    """As if nothing but small chunks had been seen for long."""
    machine = Machine(cost)
    for _ in range(100):
        machine.observed(7)
    for _ in range(100):
        machine.call(1000)
    taken = sum(machine.call(1000) for _ in range(100)) / 100
    assert taken <= 1.05 * best(machine, 1000)


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: str(cost.__name__))
def test_callers_on_all_cores_lose_nothing(cost: Cost) -> None:
    machine = Machine(cost)
    for rows in (100, 10_000):
        for _ in range(50):
            machine.call(rows, callers=1)
        assert all(machine.call(rows, callers=CORES) <= 1.05 * cost(rows) for _ in range(50))


def test_two_threads_do_nearly_twice_as_much() -> None:
    """At one millisecond of work a helper's beginning is still a tenth of the time."""
    for rows, native in ((1000, False), (10_000, False), (100_000, False), (1000, True)):
        machine = Machine(linear, native=native)
        for _ in range(64):
            machine.call(rows)
        taken = sum(machine.call(rows) for _ in range(31)) / 31
        assert linear(rows) / taken >= (1.65 if rows == 1000 else 1.85)


def test_a_new_version_starts_with_the_gain_of_others() -> None:
    """Other processes use the cores: not every version has to find that out."""
    machine = Machine(linear)
    for _ in range(10):
        machine.costs.learn_gain(machine.version, 0.5, CORES)
    new: Any = SimpleNamespace(owner="new", learned=Learned())
    assert machine.costs.gain(new) < 1.0
    new.learned.row_work = 8
    assert machine.costs.gain(new) == float("inf"), "the others' code may keep the GIL"


def test_one_disturbed_call_does_not_end_helping() -> None:
    """The first one starts the threads; helping is given up after some, and for a minute."""
    machine = Machine(linear)
    machine.costs.learn_gain(machine.version, 0.5, CORES)
    assert machine.costs.gain(machine.version) > 1.5
    for _ in range(10):
        machine.costs.learn_gain(machine.version, 0.5, CORES)
    assert machine.costs.gain(machine.version) < 1.0
    machine.now += 1.0
    assert machine.costs.gain(machine.version) == float("inf"), "it is tried again"
    machine.costs.learn_gain(machine.version, 1.9, CORES)
    assert machine.costs.gain(machine.version) > 1.03, "one call that gained is enough to go on"
    machine.now += 1.0
    for _ in range(2):
        machine.costs.learn_gain(machine.version, 0.5, CORES)
    assert machine.costs.gain(machine.version) < 1.0, "and few that did not to stop"
    machine.now += 61.0
    assert machine.costs.gain(machine.version) == float("inf")
    machine.costs.learn_gain(machine.version, 1.9, CORES)
    assert machine.costs.gain(machine.version) > 1.9, "what was before does not count any more"
