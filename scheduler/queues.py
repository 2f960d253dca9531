"""The two queues: new work, and stages of work that has started, and the executors of both.

New work is ordered by, in this order:

    priority    higher first
    share       keys that have used up their share go after those that have not
    deadline    earliest first; none is last
    arrival     first come, first served

The share is what keeps one busy key from holding up all others. A key's virtual time moves by
the cost of what it is served. A key that is ahead of the queue's virtual time by more than `burst`
waits aside; when no other key has a job, the queue's time moves on to the first of those. So within
the burst deadlines decide, beyond it shares do. (Fair queueing with eligibility,
as in EEVDF, but with the callers' own deadlines.) Within a key, a job of many chunks lets the
others have a turn after each burst.

The queue is bounded in jobs and rows, and optionally in time: a job is refused while the jobs
before it would take more than `seconds`. A key that has less waiting than its share of that is
accepted all the same, so a key that sends too much is refused and the others are not. Its jobs wait
longer than their position suggests, as other keys' later jobs go first: so it is refused also while
its own queue, at the pace at which it has moved lately, would take more than `seconds`.

Strict priorities starve. So one start in `one_in` goes to the job that has waited longest, once
that is longer than `patience`: waiting is bounded, and urgent jobs keep nearly all of the machine.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from scheduler.clock import Signal
from scheduler.errors import BadJob
from scheduler.job import Job, Stages, State

if TYPE_CHECKING:
    from scheduler.buffers import BufferPool

T = TypeVar("T")

# Entries of removed items are swept when they outnumber the others by this many.
_SPARE_ENTRIES = 64

Rank = tuple[float, int]

# The lock of chunks that need none.
_OPEN = threading.Lock()


class RunningJob:
    """A job that was accepted, until it is over."""

    __slots__ = (
        *("ahead", "answers", "arrival", "charge", "credit", "cursor", "end", "job", "left"),
        *("number", "open_chunks", "over", "pair", "share", "since", "started", "ticket"),
        *("turn", "value"),
    )

    def __init__(self, job: Job, pair: QueuePair, number: int, ticket: object, now: float) -> None:
        count = len(job.chunks)
        self.job, self.pair, self.number, self.ticket = job, pair, number, ticket
        self.arrival = self.since = now  # `since`: the last time the queue served it
        self.share = job.cost / count  # the estimated cost of a chunk
        self.ahead = 0.0  # the estimated cost of what its key had waiting when it arrived
        self.charge = 0.0  # the charge to its key for each chunk
        self.credit = 0.0  # how much longer it keeps its place among the jobs of its key
        self.turn = 0  # that place
        self.cursor = 0  # the first chunk that has not started
        self.left = count  # chunks that have not ended
        self.answers: list[object] = [None] * count
        self.open_chunks: list[RunningChunk] = []
        self.started: float | None = None
        self.over: State | None = None
        self.end = 0.0
        self.value: object = None  # the answer, or the error


class RunningChunk:
    """A chunk that has started: it holds a buffer until its last stage has ended."""

    __slots__ = (
        *("buffer", "data", "entry", "index", "left", "pool", "running", "running_job", "spent"),
        *("stages", "value", "waits"),
    )

    def __init__(self, running: RunningJob, index: int, chunk: object, stages: Stages) -> None:
        self.running_job, self.index, self.data, self.stages = running, index, chunk, stages
        self.left = len(stages.calls)  # stages that have not ended
        self.running = 0  # stages that executors run now
        # Numbers of stages that each still waits for; in a chain it is always the next one.
        self.waits: list[int] = [] if stages.linear else list(stages.waits)
        self.value: object = None
        self.spent = 0.0
        # Several first stages may want the buffer at once; most have one and need no lock.
        self.entry = threading.Lock() if len(stages.first) > 1 else _OPEN
        self.buffer: object = None
        self.pool: BufferPool | None = None


class Run(NamedTuple):
    """One stage of one chunk."""

    chunk: RunningChunk
    stage: int


class Heap(Generic[T]):
    """Items by rank; at most one item per name.

    Removing an item leaves its entry behind, to be skipped or swept later: removal is cheap, and
    memory stays in proportion to the number of queued items.
    """

    __slots__ = ("_count", "_entries", "_live")

    def __init__(self) -> None:
        # The third place makes entries of equal ranks comparable: the older one is first.
        self._entries: list[tuple[Rank, int, Hashable, T]] = []
        self._live: dict[Hashable, tuple[Rank, int, Hashable, T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._live)

    def push(self, rank: Rank, name: Hashable, item: T) -> None:
        """Add an item, in place of the one of this name; lower ranks come out first."""
        self._count += 1
        entry = (rank, self._count, name, item)
        self._live[name] = entry
        heappush(self._entries, entry)

    def pop(self) -> T:
        """Take out and return the first item."""
        while True:
            entry = heappop(self._entries)
            # Identity, as the name may have been taken out and pushed again with another rank.
            if self._live.get(entry[2]) is entry:
                del self._live[entry[2]]
                return entry[3]

    def rank(self) -> Rank:
        """Return the rank of the first item, infinity when there is none."""
        entries = self._entries
        while entries:
            entry = entries[0]
            if self._live.get(entry[2]) is entry:
                return entry[0]
            heappop(entries)
        return (inf, 0)

    def discard(self, name: Hashable) -> bool:
        """Take out the item of this name, wherever it is; return whether there was one."""
        if self._live.pop(name, None) is None:
            return False
        if len(self._entries) > 2 * len(self._live) + _SPARE_ENTRIES:
            self._entries = list(self._live.values())
            heapify(self._entries)
        return True


# A key whose chunks cost nothing would be served without end; no chunk is charged less than this.
_LEAST_COST = 1e-7
_SLACK = 64
#: With fewer jobs than this waiting, none is refused for the time they would take.
_FEW = 64


@dataclass(frozen=True, slots=True)
class QueueRules:
    """Bounds and order of a queue."""

    jobs: int = 4096
    rows: int = 1 << 20
    seconds: float = inf
    patience: float = 0.5
    one_in: int = 8
    burst: float = 0.002

    def __post_init__(self) -> None:
        if self.jobs < 0 or self.rows < 0 or self.one_in < 1:
            raise BadJob("a queue has room for zero or more jobs and rows", found=repr(self))
        if not (self.patience >= 0 and self.burst >= 0 and self.seconds >= 0):
            raise BadJob("patience, burst and seconds are seconds", found=repr(self))


class FairQueue:
    """New jobs of one priority: keys by share, then all jobs by deadline and arrival.

    A key is `ready` when it is within its share, at the place of its first job, and `aside` when
    it is not. It is charged when one of its chunks starts, and again when that has ended and took
    another time than was estimated.
    """

    __slots__ = (
        *("_aside", "_burst", "_jobs", "_ready", "_turns", "_used", "_virtual"),
        *("cost", "costs", "paces"),
    )

    def __init__(self, burst: float) -> None:
        self._burst = burst
        self._virtual = 0.0
        self._turns = 0
        self._used: dict[Hashable, float] = {}  # per key: its virtual time
        self._jobs: dict[Hashable, Heap[RunningJob]] = {}  # per key that has jobs
        self._ready: Heap[Hashable] = Heap()
        self._aside: Heap[Hashable] = Heap()
        #: Estimated seconds of the jobs that wait here: of all, and of each key.
        self.cost, self.costs = 0.0, dict[Hashable, float]()
        #: Seconds that a key's jobs have waited lately, for each second of its own before them.
        self.paces = dict[Hashable, float]()

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def push(self, running: RunningJob) -> None:
        """Queue the next chunk of a job.

        A job keeps its place among those of its key for a burst; then the others have their turn.
        """
        if running.credit <= 0.0:
            self._turns += 1
            running.turn, running.credit = self._turns, self._burst
        key = running.job.key
        jobs = self._jobs.get(key)
        if jobs is None:
            jobs = self._jobs[key] = Heap()
        rank = (_deadline(running), running.turn)
        first = not jobs or rank < jobs.rank()
        jobs.push(rank, running.number, running)
        if first:
            self._place(key, jobs)

    def book(self, key: Hashable, seconds: float) -> None:
        """Add seconds to the waiting time of a key; negative seconds take off."""
        self.cost += seconds
        left = self.costs.get(key, 0.0) + seconds
        if left > _LEAST_COST:
            self.costs[key] = left
        else:  # nothing, and what rounding has left of it
            self.costs.pop(key, None)

    def learn(self, key: Hashable, ahead: float, waited: float) -> None:
        """Update the pace of a key: a job `waited` so long behind `ahead` seconds of its key.

        Behind little of its key a job may have waited for other reasons, so only a pace that is
        better than expected counts then. That one must count: a key that is refused never has more
        waiting, and would stay refused.
        """
        pace = waited / max(ahead, self._burst, _LEAST_COST)
        expected = self.paces.get(key, pace if ahead > self._burst else 0.0)
        if ahead > self._burst or pace < expected:
            self.paces[key] = pace + 0.75 * (expected - pace)

    def wait(self, key: Hashable) -> float:
        """Expected waiting time of a new job behind its key's others; 0 without measurements."""
        return self.costs.get(key, 0.0) * self.paces.get(key, 0.0)

    def pop(self) -> RunningJob:
        """Take out the job whose next chunk is to start, and charge its key."""
        if not self._ready:
            self._virtual = max(self._virtual, self._aside.rank()[0])
            while self._aside.rank()[0] <= self._virtual + self._burst:
                key = self._aside.pop()
                self._ready.push(self._jobs[key].rank(), key, key)
        key = self._ready.pop()
        running = self._jobs[key].pop()
        self._charge(running)
        return running

    def take(self, running: RunningJob) -> None:
        """Take out this job out of turn, and charge its key."""
        self._jobs[running.job.key].discard(running.number)
        self._charge(running)

    def remove(self, running: RunningJob) -> None:
        """Take out a job that will not run."""
        jobs = self._jobs[running.job.key]
        if jobs.discard(running.number):
            self._place(running.job.key, jobs)

    def correct(self, key: Hashable, cost: float) -> None:
        """Charge a key for the cost of a chunk beyond its estimate; refund it if negative."""
        self._used[key] = max(self._used.get(key, 0.0), self._virtual) + cost
        jobs = self._jobs.get(key)
        if jobs is not None:
            self._place(key, jobs)

    def _charge(self, running: RunningJob) -> None:
        cost = max(running.share, _LEAST_COST)
        running.charge = cost
        running.credit -= cost
        self.correct(running.job.key, cost)

    def _place(self, key: Hashable, jobs: Heap[RunningJob]) -> None:
        """Put a key among the ready or the aside ones, by its share."""
        self._ready.discard(key)
        self._aside.discard(key)
        if not jobs:
            del self._jobs[key]
            self._tidy()
        elif (used := self._used.get(key, 0.0)) <= self._virtual + self._burst:
            self._ready.push(jobs.rank(), key, key)
        else:
            self._aside.push((used, 0), key, key)

    def _tidy(self) -> None:
        """Forget keys that have used no more than the others."""
        if len(self._used) > 2 * len(self._jobs) + _SLACK:
            self._used = {key: used for key, used in self._used.items() if used > self._virtual}
            self.paces = {key: pace for key, pace in self.paces.items() if key in self._used}


def _deadline(running: RunningJob) -> float:
    deadline = running.job.deadline
    return inf if deadline is None else deadline


class Fresh:
    """The low queue: jobs with chunks that have not started."""

    __slots__ = ("_levels", "_order", "_rules", "_turn", "_waiting", "cost", "rows")

    def __init__(self, rules: QueueRules) -> None:
        self._rules = rules
        self._levels: dict[int, FairQueue] = {}
        self._order: list[int] = []  # priorities with a queue, highest first
        self._waiting: OrderedDict[int, RunningJob] = OrderedDict()  # longest waiting first
        self._turn = 0
        self.rows = 0
        self.cost = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, running: RunningJob) -> None:
        """Queue a job that has just arrived."""
        self.rows += running.job.rows
        self.cost += running.job.cost
        self._waiting[running.number] = running
        self._push(running)
        level, key = self._levels[running.job.priority], running.job.key
        running.ahead = level.costs.get(key, 0.0)
        level.book(key, running.job.cost)

    def crowds(self, key: Hashable, priority: int, executors: int) -> bool:
        """True if too much waits before a job of this key, and the key has its fair share of that.

        Any thread may call it without the lock: the answer is right for some moment of the call.
        """
        if len(self._waiting) < _FEW:
            return False
        level = self._levels.get(priority)
        if level is not None and level.wait(key) > self._rules.seconds:
            return True
        seconds = self._rules.seconds * executors
        if self.cost <= seconds:
            return False
        ahead, own, keys = 0.0, 0.0, 0
        for each, level in tuple(self._levels.items()):
            if each >= priority:
                ahead, keys = ahead + level.cost, keys + len(level.costs)
                own += level.costs.get(key, 0.0)
        return ahead > seconds and own * keys > seconds

    def take(self, now: float) -> tuple[RunningJob, int]:
        """Take out the next chunk to start: its job and its index."""
        running = self._overdue(now) or self._levels[self._order[0]].pop()
        level = self._levels[running.job.priority]
        if not running.cursor:
            level.learn(running.job.key, running.ahead, now - running.arrival)
        index, running.cursor, running.since = running.cursor, running.cursor + 1, now
        self.rows -= running.job.rows_of(index)
        self.cost -= running.share
        level.book(running.job.key, -running.share)
        if running.cursor < len(running.answers):
            self._waiting.move_to_end(running.number)
            self._push(running)
        else:
            del self._waiting[running.number]
        self._tidy(running.job.priority)
        return running, index

    def remove(self, running: RunningJob) -> None:
        """Take out a job that is over, if it is still here."""
        if self._waiting.pop(running.number, None) is None:
            return
        self._levels[running.job.priority].remove(running)
        count = len(running.answers)
        self.rows -= running.job.rows - running.job.rows * running.cursor // count
        left = running.share * (count - running.cursor)
        self.cost -= left
        self._levels[running.job.priority].book(running.job.key, -left)
        self._tidy(running.job.priority)

    def correct(self, running: RunningJob, cost: float) -> None:
        """Charge the cost of a chunk beyond its estimate."""
        level = self._levels.get(running.job.priority)
        if level is not None:
            level.correct(running.job.key, cost)

    def refund(self, running: RunningJob) -> None:
        """Give back the charge of a chunk that was taken out and will not run."""
        self.correct(running, -running.charge)

    def _push(self, running: RunningJob) -> None:
        level = self._levels.get(running.job.priority)
        if level is None:
            level = self._levels[running.job.priority] = FairQueue(self._rules.burst)
            self._order = sorted(self._levels, reverse=True)
        level.push(running)

    def _overdue(self, now: float) -> RunningJob | None:
        """The job that has waited longest, if that is too long and it is its turn."""
        longest = next(iter(self._waiting.values()))
        if now - longest.since <= self._rules.patience:
            return None
        self._turn = (self._turn + 1) % self._rules.one_in
        if self._turn:
            return None
        self._levels[longest.job.priority].take(longest)
        return longest

    def _tidy(self, priority: int) -> None:
        """Drop a priority without jobs, and rounding errors when no job waits."""
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
        running = run.chunk.running_job
        rank = (-running.job.priority, _deadline(running), running.number, self._count)
        heappush(self._entries, (*rank, run))

    def pop(self) -> Run | None:
        """Take out the next stage of a job that is not over."""
        while self._entries:
            run = heappop(self._entries)[-1]
            if run.chunk.running_job.over is None:
                return run
        return None


# --- a pair of queues and its executors -----------------------------------------------------------


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
        """True if there is no room for a job; one above the bounds may wait if it waits alone."""
        if self.idle:
            return False
        fresh, rules = self.fresh, self.rules
        waiting = len(fresh)
        if waiting >= rules.jobs or (waiting > 0 and fresh.rows + rows > rules.rows):
            return True
        return fresh.crowds(key, priority, max(1, len(self.slots)))


class Effects:
    """Actions that an event asks its caller for, in this order."""

    __slots__ = ("ended", "hires", "settled", "starts")

    def __init__(self) -> None:
        self.hires: list[Slot] = []  # give this slot a thread
        self.ended: list[
            RunningChunk
        ] = []  # take this chunk's buffer back, as the next may want it
        self.starts: list[Slot] = []  # wake this executor: it has a run, or is retired
        self.settled: list[RunningJob] = []  # tell the caller how the job ended

    def __bool__(self) -> bool:
        return bool(self.starts or self.settled or self.ended or self.hires)


NOTHING = Effects()  # shared by all events that ask for nothing
