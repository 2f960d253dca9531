"""A runtime, a clock, and a plan that waits until a test lets it go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from oven import Plan
from oven.plans.execution import Execution
from runtime import Runtime
from tests.runtime.plans import shift


@pytest.fixture
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    """A runtime without models, with as many executors as the module's `EXECUTORS` says."""
    with Runtime(executors=getattr(request.module, "EXECUTORS", None)) as made:
        yield made


class Clock:
    """Time that goes on when it is told to."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Hold:
    """Makes plans whose work by executors does not end before `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._started, self._go = threading.Event(), threading.Event()
        self._plans: set[int] = set()
        whole = Execution.step

        def step(work: Execution, number: int, chunk: Any, memory: object = None) -> None:
            if id(work.code) in self._plans:
                self._started.set()
                assert self._go.wait(60)
            whole(work, number, chunk, memory)

        monkeypatch.setattr(Execution, "step", step)

    def plan(self) -> Plan:
        """A plan of its own kind: answers are moved by 9."""
        made = shift(9.0)
        self._plans.add(id(made.code))
        return made

    def wait(self) -> None:
        """Wait until an executor is at work."""
        assert self._started.wait(60)

    def go(self) -> None:
        """Let everybody go on."""
        self._go.set()


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hold]:
    made = Hold(monkeypatch)
    yield made
    made.go()
