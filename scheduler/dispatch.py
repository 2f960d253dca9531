"""The dispatcher: which stage runs where and when. A state machine without threads or clock.

Events go in as method calls, each with the time: a job is submitted, a stage has finished or
failed, an executor died, a job is cancelled, time passes, a lane is reserved, the end is near.
What has to be done about it comes out as `Effects`, to be applied by whoever called: the pool
does so with threads, tests do so without. Calls must not overlap; the pool holds a lock.

Two rules decide what runs. An executor that is free takes a stage of a chunk that has started, if
there is one, else the first stage of new work: buffers are held from a chunk's first stage to its
last, so finishing comes before starting. And what is over does not run.
"""

from __future__ import annotations

from collections.abc import Hashable

from scheduler.effects import NOTHING, Effects
from scheduler.errors import BadJob, DeadlineExceeded, ExecutorDied, Overloaded, SchedulerClosed
from scheduler.heap import Heap
from scheduler.job import Job
from scheduler.lane import QueuePair, Slot
from scheduler.queues import QueueRules
from scheduler.stages import Stages
from scheduler.stats import Counts
from scheduler.ticket import State
from scheduler.work import Run, RunningChunk, RunningJob

SHARED = "shared"


def _join(work: RunningJob, _buffer: object) -> object:
    join = work.job.join
    return None if join is None else join(work.answers)


_JOINING = Stages.chain(_join)
_JOINED = -1  # the index of the strand that joins


class Dispatcher:
    """Decides what runs. Not safe for threads: whoever shares one holds a lock."""

    def __init__(self, executors: int, rules: QueueRules | None = None) -> None:
        self.counts = Counts()
        self.closed = False
        self.lanes: list[QueuePair] = []
        self._reserved: dict[Hashable, QueuePair] = {}
        self._works: dict[int, RunningJob] = {}
        self._deadlines: Heap[RunningJob] = Heap()
        self._numbers = 0
        self._slots = 0
        self._out = Effects()
        self.shared = self._open(SHARED, executors, rules or QueueRules())

    # What callers ask of it.

    def collect(self) -> Effects:
        """Return what the events since the last call ask for."""
        if not self._out:
            return NOTHING
        out, self._out = self._out, Effects()
        return out

    def lane_of(self, key: Hashable) -> QueuePair:
        """Return the lane that serves a key."""
        return self._reserved.get(key, self.shared) if self._reserved else self.shared

    @property
    def unfinished(self) -> int:
        """How many jobs are not over."""
        return len(self._works)

    @property
    def next_deadline(self) -> float:
        """The earliest deadline of a job that is not over, infinity when there is none."""
        return self._deadlines.rank()[0]

    # Events.

    def submit(self, job: Job, ticket: object, now: float) -> RunningJob:
        """Accept a job, or raise `Overloaded` or `SchedulerClosed` and change nothing."""
        if self.closed:
            raise SchedulerClosed("this pool takes no more jobs", hint="it was shut down")
        lane = self.lane_of(job.key)
        if not lane.idle:
            self._admit(lane, job, now)
        self._numbers += 1
        work = RunningJob(job, lane, self._numbers, ticket, now)
        self._works[work.number] = work
        lane.works += 1
        self.counts.submitted += 1
        if job.deadline is not None:
            self._deadlines.push((job.deadline, work.number), work.number, work)
            if job.deadline <= now:
                self._expire(work, now)
                return work
        if lane.idle and len(job.chunks) == 1 and len(job.stages.first) == 1:
            # Nothing waits, so the queue has nothing to decide.
            self._wake(lane.idle.pop(), self._begin(work, 0, now), now)
            work.cursor = 1
        else:
            lane.fresh.add(work)
            self._fill(lane, now)
        return work

    def _admit(self, lane: QueuePair, job: Job, now: float) -> None:
        """Refuse a job for which there is no room, even without those that came too late."""
        asks = (job.key, job.priority, job.rows)
        if lane.is_full(*asks):
            self.tick(now)
        if not lane.is_full(*asks):
            return
        self.counts.refused += 1
        fresh, rules = lane.fresh, lane.rules
        wait = fresh.cost / max(1, len(lane.slots))
        raise Overloaded(
            "the queue is full",
            where=f"the lane of {lane.key!r}",
            found=f"{len(fresh)} of {rules.jobs} jobs and {fresh.rows} of {rules.rows} rows wait",
            hint=f"it should have drained in {wait:.3f} s; send the job again or elsewhere",
            retry_after=wait,
        )

    def finished(self, slot: Slot, value: object, now: float, spent: float | None = None) -> None:
        """A stage has returned; its executor gets its next run, or is idle.

        `spent` is what the stage cost where that is not the time it took.
        """
        run = self._take_back(slot, now, spent)
        if run.strand.work.over is None:
            self._advance(run, value, now)
        elif not run.strand.running:
            self._close_strand(run.strand)
        self._feed(slot, now)

    def failed(self, slot: Slot, error: BaseException, now: float) -> None:
        """A stage has raised: its job is over, and only its job."""
        self._fail(slot, error, now)
        self._feed(slot, now)

    def died(self, slot: Slot, error: BaseException, now: float) -> None:
        """An executor is gone: what it ran has failed, and another one takes its place."""
        self.counts.deaths += 1
        lane = slot.lane
        lane.slots.discard(slot)
        if slot in lane.idle:
            lane.idle.remove(slot)
        if slot.run is not None:
            self._fail(slot, _death(slot.run, error), now)
        if not (slot.retired or (lane.closing and not lane.works)):
            self._hire(lane)
            self._fill(lane, now)
        self._forget(lane)

    def cancel(self, work: RunningJob, now: float) -> bool:
        """The caller gives a job up; return whether that was in time."""
        if work.over is None:
            self._end(work, State.CANCELLED, None, now)
        return work.over is State.CANCELLED

    def tick(self, now: float) -> None:
        """Time has passed: jobs whose deadline has come are over."""
        while self._deadlines.rank()[0] <= now:
            self._expire(self._deadlines.pop(), now)

    def reserve(self, key: Hashable, executors: int, rules: QueueRules) -> None:
        """From now on this key has a lane of its own; what it had queued stays where it is."""
        if self.closed:
            raise SchedulerClosed("this pool takes no more reservations", hint="it was shut down")
        if key in self._reserved:
            raise BadJob("this key has a reservation already", found=repr(key))
        self._reserved[key] = self._open(key, executors, rules)

    def release(self, key: Hashable) -> None:
        """The key joins the shared lane; its own ends when what it has accepted is over."""
        lane = self._reserved.pop(key, None)
        if lane is None:
            raise BadJob("this key has no reservation", found=repr(key))
        lane.closing = True
        self._retire(lane)

    def close(self, now: float, *, drain: bool) -> None:
        """Accept nothing more; finish what was accepted, or drop it."""
        self.closed = True
        for lane in self.lanes:
            lane.closing = True
        if not drain:
            for work in tuple(self._works.values()):
                self._end(work, State.CANCELLED, None, now)
        for lane in tuple(self.lanes):
            self._retire(lane)

    # Lanes and their executors.

    def _open(self, key: Hashable, executors: int, rules: QueueRules) -> QueuePair:
        if executors < 1:
            raise BadJob("a lane needs at least one executor", found=f"executors={executors}")
        lane = QueuePair(key, rules)
        self.lanes.append(lane)
        for _ in range(executors):
            self._hire(lane)
        return lane

    def _hire(self, lane: QueuePair) -> None:
        self._slots += 1
        slot = Slot(self._slots, lane)
        lane.slots.add(slot)
        lane.idle.append(slot)
        self._out.hires.append(slot)

    def _retire(self, lane: QueuePair) -> None:
        """Send idle executors of a lane home that will never have work again."""
        if lane.closing and not lane.works:
            for slot in lane.idle:
                slot.retired = True
                lane.slots.discard(slot)
            self._out.starts += lane.idle
            lane.idle = []
            self._forget(lane)

    def _forget(self, lane: QueuePair) -> None:
        if lane.closing and not lane.slots and lane in self.lanes:
            self.lanes.remove(lane)

    # What runs next.

    def _fill(self, lane: QueuePair, now: float) -> None:
        """Give idle executors what there is to run."""
        while lane.idle:
            run = self._pick(lane, now)
            if run is None:
                return
            self._wake(lane.idle.pop(), run, now)

    def _feed(self, slot: Slot, now: float) -> None:
        """Give an executor that is awake its next run, and others what it leaves."""
        lane = slot.lane
        run = self._pick(lane, now)
        if run is not None:
            self._give(slot, run, now)
            if lane.idle:
                self._fill(lane, now)
        elif lane.closing and not lane.works:
            slot.retired = True
            lane.slots.discard(slot)
            self._forget(lane)
        else:
            lane.idle.append(slot)

    def _pick(self, lane: QueuePair, now: float) -> Run | None:
        """Take out what is to run next: started work first, and nothing that is over."""
        while True:
            run = lane.started.pop()
            if run is None:
                break
            if not self._late(run.strand.work, now):
                return run
        while lane.fresh:
            work, index = lane.fresh.take(now)
            if not self._late(work, now):
                return self._begin(work, index, now)
            lane.fresh.refund(work)
        return None

    def _late(self, work: RunningJob, now: float) -> bool:
        deadline = work.job.deadline
        if deadline is None or now < deadline:
            return False
        self._expire(work, now)
        return True

    def _begin(self, work: RunningJob, index: int, now: float) -> Run:
        """Start a chunk: its first stage is the run, the others like it are started work."""
        job = work.job
        strand = RunningChunk(work, index, job.chunks[index], job.stages)
        work.strands.append(strand)
        if work.started is None:
            work.started = now
            self.counts.reached[State.STARTED] += 1
            self.counts.wait.record(now - work.arrival)
        first = job.stages.first
        for stage in first[1:]:
            work.lane.started.push(Run(strand, stage))
        return Run(strand, first[0])

    def _wake(self, slot: Slot, run: Run, now: float) -> None:
        self._give(slot, run, now)
        self._out.starts.append(slot)

    def _give(self, slot: Slot, run: Run, now: float) -> None:
        run.strand.running += 1
        slot.since = now
        slot.run = run

    def _take_back(self, slot: Slot, now: float, cost: float | None = None) -> Run:
        run = slot.run
        assert run is not None, "an executor reported a stage that it was not given"
        slot.run = None
        spent = now - slot.since
        run.strand.running -= 1
        run.strand.spent += spent if cost is None else cost
        self.counts.busy += spent
        self.counts.stages += 1
        return run

    # How work goes on and ends.

    def _advance(self, run: Run, value: object, now: float) -> None:
        strand, stages = run.strand, run.strand.stages
        last = len(stages.calls) - 1
        if run.stage == last:
            strand.value = value
        strand.left -= 1
        if not strand.left:
            self._complete(strand, now)
        elif stages.linear:
            strand.work.lane.started.push(Run(strand, run.stage + 1))
        else:
            self._release(strand, stages.then[run.stage])

    def _release(self, strand: RunningChunk, stages: tuple[int, ...]) -> None:
        """Queue those of these stages that wait for nothing more."""
        for stage in stages:
            strand.waits[stage] -= 1
            if not strand.waits[stage]:
                strand.work.lane.started.push(Run(strand, stage))

    def _complete(self, strand: RunningChunk, now: float) -> None:
        """A chunk has its answer; with the last one the job has, once they are joined."""
        work = strand.work
        self._close_strand(strand)
        if strand.index == _JOINED:
            self._end(work, State.DONE, strand.value, now)
            return
        work.answers[strand.index] = strand.value
        work.left -= 1
        if work.left:
            return
        if work.job.join is None:
            self._end(work, State.DONE, strand.value if work.job.alone else work.answers, now)
            return
        joining = RunningChunk(work, _JOINED, work, _JOINING)
        work.strands.append(joining)
        work.lane.started.push(Run(joining, 0))

    def _fail(self, slot: Slot, error: BaseException, now: float) -> None:
        strand = self._take_back(slot, now).strand
        if strand.work.over is None:
            self._end(strand.work, State.FAILED, error, now)
        elif not strand.running:
            self._close_strand(strand)

    def _expire(self, work: RunningJob, now: float) -> None:
        late = now - (work.job.deadline or 0.0)
        step = "before its first stage" if work.started is None else "between stages"
        error = DeadlineExceeded(
            "the deadline passed before the job was done",
            found=f"it was dropped {step}, {late * 1e3:.3f} ms after its deadline",
            hint="allow more time, or send less work to this pool",
        )
        self._end(work, State.EXPIRED, error, now)

    def _end(self, work: RunningJob, state: State, value: object, now: float) -> None:
        """A job is over: nothing of it stays queued, buffers that nobody uses come back."""
        work.over, work.value, work.end = state, value, now
        del self._works[work.number]
        if work.job.deadline is not None:
            self._deadlines.discard(work.number)
        lane = work.lane
        if work.cursor < len(work.answers):
            lane.fresh.remove(work)
        for strand in tuple(work.strands):
            if not strand.running:
                self._close_strand(strand)
        lane.works -= 1
        self.counts.reached[state] += 1
        if state is State.DONE:
            self.counts.total.record(now - work.arrival)
        self._out.settled.append(work)
        self._retire(lane)

    def _close_strand(self, strand: RunningChunk) -> None:
        work = strand.work
        work.strands.remove(strand)
        if strand.index != _JOINED:
            # What never waited was not charged, and costs its key all it took.
            work.lane.fresh.correct(work, strand.spent - work.charge)
            self._out.ended.append(strand)


def _death(run: Run, error: BaseException) -> ExecutorDied:
    died = ExecutorDied(
        "the executor that ran this job died and has been replaced",
        where=f"stage {run.stage} of chunk {run.strand.index}",
        found=f"{type(error).__name__}: {error}",
        hint="a stage must raise exceptions derived from Exception",
    )
    died.__cause__ = error
    return died
