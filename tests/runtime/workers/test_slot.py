"""A worker's place: how long it waits for one that is silent, and between one and the next."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from runtime.workers.fleet import Fleet
from runtime.workers.slot import (
    FIRST_PAUSE,
    HUNG_SECONDS,
    LONGEST_PAUSE,
    QUIET_SECONDS,
    SHORT_LIFE,
    Backoff,
    WorkerSlot,
)


class Process:
    """A process that can be killed, and does nothing."""

    killed = terminated = 0

    def kill(self) -> None:
        self.killed += 1

    def terminate(self) -> None:
        self.terminated += 1


@pytest.fixture
def changes() -> list[bool]:
    """What a slot has said about being ready, in order."""
    return []


@pytest.fixture
def slot(changes: list[bool]) -> WorkerSlot:
    """A slot whose process takes requests."""

    def changed() -> None:
        changes.append(made.ready.is_set())

    made = WorkerSlot(
        0, Fleet(), [], {}, handle=lambda *_: None, on_event=lambda _: None, on_change=changed
    )
    made.set_ready(ready=True)
    return made


def test_those_that_lived_shortly_are_replaced_more_and_more_slowly() -> None:
    backoff = Backoff()
    pauses = [backoff.after(SHORT_LIFE / 2) for _ in range(12)]
    assert pauses[0] == 2 * FIRST_PAUSE
    assert all(two == min(2 * one, LONGEST_PAUSE) for one, two in pairwise(pauses))
    assert pauses[-1] == LONGEST_PAUSE
    assert backoff.after(SHORT_LIFE * 2) == FIRST_PAUSE
    assert backoff.after(0.0) == 2 * FIRST_PAUSE, "all is forgotten after a long life"


@pytest.mark.parametrize(
    ("seconds", "ready", "killed"),
    [
        (QUIET_SECONDS * 0.9, True, 0),
        (QUIET_SECONDS * 1.1, False, 0),
        (HUNG_SECONDS * 0.9, False, 0),
        (HUNG_SECONDS * 1.1, False, 1),
    ],
)
def test_one_that_is_silent_gets_no_requests_and_is_killed_at_last(
    slot: WorkerSlot, changes: list[bool], seconds: float, killed: int, *, ready: bool
) -> None:
    process: Any = Process()
    slot._unanswered(process, seconds)
    assert (slot.ready.is_set(), process.killed) == (ready, killed)
    assert changes == ([True] if ready else [True, False])


def test_one_that_takes_no_requests_yet_is_not_waited_for(slot: WorkerSlot) -> None:
    process: Any = Process()
    slot.process = process
    slot.stop()
    assert not process.terminated, "it finishes its requests"
    slot.set_ready(ready=False)
    slot.stop()
    assert process.terminated == 1
