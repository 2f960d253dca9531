"""Two queues and the executors that serve them: one shared pair, and one per reservation."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from scheduler.clock import Signal
from scheduler.queues import Fresh, QueueRules, Started

if TYPE_CHECKING:
    from scheduler.running import Run


class Slot:
    """The dispatcher's record of an executor: its current run, and the signal to wake it."""

    __slots__ = ("number", "pair", "retired", "run", "since", "wake")

    def __init__(self, number: int, pair: QueuePair) -> None:
        self.number, self.pair = number, pair
        self.wake = Signal()
        self.run: Run | None = None
        self.since = 0.0
        self.retired = False


class QueuePair:
    """The queues of new and of started jobs that share executors.

    Between two events no executor is idle while one of its two queues has a stage that can run.
    """

    __slots__ = ("closing", "fresh", "idle", "key", "rules", "slots", "started", "unfinished")

    def __init__(self, key: Hashable, rules: QueueRules) -> None:
        self.key, self.rules = key, rules
        self.fresh = Fresh(rules)
        self.started = Started()
        self.slots: set[Slot] = set()
        self.idle: list[Slot] = []  # the one that stopped last is woken first: its caches are warm
        self.unfinished = 0  # jobs that are not over
        self.closing = False

    def is_full(self, key: Hashable, priority: int, rows: int) -> bool:
        """Whether there is no room for a job; one above the bounds may wait if it waits alone."""
        if self.idle:
            return False
        fresh, rules = self.fresh, self.rules
        waiting = len(fresh)
        if waiting >= rules.jobs or (waiting > 0 and fresh.rows + rows > rules.rows):
            return True
        return fresh.crowds(key, priority, max(1, len(self.slots)))
