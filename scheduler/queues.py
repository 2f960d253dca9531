"""The two queues: new work, and stages of work that has started.

New work is ordered by, in this order:

    priority    higher first
    share       keys that have used up their share go after those that have not
    deadline    earliest first; none is last
    arrival     first come, first served

The share is what keeps one busy key from holding up all others. A key's virtual time moves by
the cost of what it is served; the queue's virtual time moves by the same cost divided by the
number of keys that want something. What would put a key ahead of the queue by more than `burst`
waits aside until the queue has caught up. So within the burst deadlines decide, beyond it shares
do. (This is the rule of fair queueing with eligibility, EEVDF, with the callers' deadlines.)

Strict priorities starve. So one start in `one_in` goes to the work that has waited longest, once
that is longer than `patience`: waiting is bounded, and urgent work keeps nearly all of the machine.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from scheduler.errors import BadJob
from scheduler.heap import Heap
from scheduler.work import Run, Work

# Free work would be served without end; no chunk takes less than this.
_LEAST_COST = 1e-7
_SLACK = 64


@dataclass(frozen=True, slots=True)
class QueueRules:
    """How much may wait, and in which order it is served."""

    jobs: int = 4096
    rows: int = 1 << 20
    patience: float = 0.5
    one_in: int = 8
    burst: float = 0.002

    def __post_init__(self) -> None:
        if self.jobs < 0 or self.rows < 0 or self.one_in < 1:
            raise BadJob("a queue has room for zero or more jobs and rows", found=repr(self))
        if not (self.patience >= 0 and self.burst >= 0):
            raise BadJob("patience and burst are seconds", found=repr(self))


class FairQueue:
    """New work of one priority: by share, then deadline, then arrival."""

    __slots__ = ("_burst", "_eligible", "_later", "_tags", "_virtual", "_wanting")

    def __init__(self, burst: float) -> None:
        self._burst = burst
        self._virtual = 0.0
        self._tags: dict[Hashable, float] = {}  # per key: its virtual time
        self._wanting: dict[Hashable, int] = {}  # per key: entries queued
        self._eligible: Heap[Work] = Heap()  # by deadline
        self._later: Heap[Work] = Heap()  # by virtual time

    def __len__(self) -> int:
        return len(self._eligible) + len(self._later)

    def push(self, work: Work) -> None:
        """Queue the next chunk of a job and charge its key for it."""
        key = work.job.key
        start = max(self._tags.get(key, 0.0), self._virtual)
        work.charge = max(work.share, _LEAST_COST)
        self._tags[key] = start + work.charge
        self._wanting[key] = self._wanting.get(key, 0) + 1
        if start <= self._virtual + self._burst:
            self._eligible.push(_deadline(work), work.number, work)
        else:
            self._later.push(start, work.number, work)

    def pop(self) -> Work:
        """Take out the job whose next chunk is to start."""
        if not self._eligible:
            self._virtual = max(self._virtual, self._later.rank())
        horizon = self._virtual + self._burst
        while self._later and self._later.rank() <= horizon:
            late = self._later.pop()
            self._eligible.push(_deadline(late), late.number, late)
        work = self._eligible.pop()
        self._virtual += work.charge / len(self._wanting)
        self._left(work.job.key)
        return work

    def take(self, work: Work) -> None:
        """Take out this job out of turn; its key stays charged."""
        if self._eligible.discard(work.number) or self._later.discard(work.number):
            self._virtual += work.charge / len(self._wanting)
            self._left(work.job.key)

    def remove(self, work: Work) -> None:
        """Take out a job that will not run, and undo the charge."""
        if self._eligible.discard(work.number) or self._later.discard(work.number):
            self.correct(work.job.key, -work.charge)
            self._left(work.job.key)

    def correct(self, key: Hashable, cost: float) -> None:
        """Charge a key for what a chunk cost beyond its estimate, or give back what it did not."""
        tag = self._tags.get(key)
        if tag is not None:
            self._tags[key] = max(0.0, tag + cost)

    def _left(self, key: Hashable) -> None:
        count = self._wanting[key] - 1
        if count:
            self._wanting[key] = count
            return
        del self._wanting[key]
        if len(self._tags) > 2 * len(self._wanting) + _SLACK:
            self._tags = {key: tag for key, tag in self._tags.items() if tag > self._virtual}


def _deadline(work: Work) -> float:
    deadline = work.job.deadline
    return inf if deadline is None else deadline


class Fresh:
    """The low queue: jobs with chunks that have not started."""

    __slots__ = ("_levels", "_order", "_rules", "_turn", "_waiting", "cost", "rows")

    def __init__(self, rules: QueueRules) -> None:
        self._rules = rules
        self._levels: dict[int, FairQueue] = {}
        self._order: list[int] = []  # priorities with a queue, highest first
        self._waiting: OrderedDict[int, Work] = OrderedDict()  # longest waiting first
        self._turn = 0
        self.rows = 0
        self.cost = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, work: Work) -> None:
        """Queue a job that has just arrived."""
        self.rows += work.job.rows
        self.cost += work.job.cost
        self._waiting[work.number] = work
        self._push(work)

    def take(self, now: float) -> tuple[Work, int]:
        """Take out the next chunk to start: its job and its index."""
        work = self._overdue(now) or self._best()
        index, work.cursor, work.since = work.cursor, work.cursor + 1, now
        self.rows -= work.job.rows_of(index)
        self.cost -= work.share
        if work.cursor < len(work.answers):
            self._waiting.move_to_end(work.number)
            self._push(work)
        else:
            del self._waiting[work.number]
        self._tidy(work.job.priority)
        return work, index

    def remove(self, work: Work) -> None:
        """Take out a job that is over, if it is still here."""
        if self._waiting.pop(work.number, None) is None:
            return
        self._levels[work.job.priority].remove(work)
        count = len(work.answers)
        self.rows -= work.job.rows - work.job.rows * work.cursor // count
        self.cost -= work.share * (count - work.cursor)
        self._tidy(work.job.priority)

    def correct(self, work: Work, cost: float) -> None:
        """Note what a chunk cost beyond its estimate."""
        level = self._levels.get(work.job.priority)
        if level is not None:
            level.correct(work.job.key, cost)

    def _push(self, work: Work) -> None:
        level = self._levels.get(work.job.priority)
        if level is None:
            level = self._levels[work.job.priority] = FairQueue(self._rules.burst)
            self._order = sorted(self._levels, reverse=True)
        level.push(work)

    def _best(self) -> Work:
        return self._levels[self._order[0]].pop()

    def _overdue(self, now: float) -> Work | None:
        """The work that has waited longest, if that is too long and it is its turn."""
        longest = next(iter(self._waiting.values()))
        if now - longest.since <= self._rules.patience:
            return None
        self._turn = (self._turn + 1) % self._rules.one_in
        if self._turn:
            return None
        self._levels[longest.job.priority].take(longest)
        return longest

    def _tidy(self, priority: int) -> None:
        """Forget a priority that nobody uses, and rounding errors when nothing waits."""
        if not self._levels[priority]:
            del self._levels[priority]
            self._order.remove(priority)
        if not self._waiting:
            self.cost = 0.0


class Started:
    """The high queue: stages of chunks that have started, in the order of their jobs.

    It is short: no chunk starts while a stage waits here, so no more chunks are under way than
    there are executors. Stages of jobs that are over are skipped when they come up.
    """

    __slots__ = ("_count", "_entries")

    def __init__(self) -> None:
        self._entries: list[tuple[int, float, int, int, Run]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, run: Run) -> None:
        """Queue a stage that can run now."""
        self._count += 1
        work = run.strand.work
        rank = (-work.job.priority, _deadline(work), work.number, self._count)
        heappush(self._entries, (*rank, run))

    def pop(self) -> Run | None:
        """Take out the next stage of a job that is not over."""
        while self._entries:
            run = heappop(self._entries)[-1]
            if run.strand.work.over is None:
                return run
        return None
