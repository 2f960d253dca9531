"""The dispatcher: which stage runs where and when. A state machine without threads or clock.

Events go in as method calls, each with the time: a job is submitted, a stage has finished or
failed, an executor died, a job is cancelled, time passes, executors are reserved, the pool closes.
What has to be done about it comes out as `Effects`, which the caller applies: the pool does so with
threads, tests do so without. Calls must not overlap; the pool holds a lock around each.

Two rules decide what runs. An executor that is free takes a stage of a chunk that has started, if
there is one, else the first stage of new work: buffers are held from a chunk's first stage to its
last, so finishing comes before starting. A job that is over does not run.
"""

from __future__ import annotations

from collections.abc import Hashable

from scheduler.errors import BadJob, DeadlineExceeded, ExecutorDied, Overloaded, SchedulerClosed
from scheduler.job import Job, Stages, State
from scheduler.queues import (
    NOTHING,
    Effects,
    Heap,
    QueuePair,
    QueueRules,
    Run,
    RunningChunk,
    RunningJob,
    Slot,
)
from scheduler.stats import DispatchCounts

SHARED = "shared"


def _join(running: RunningJob, _buffer: object) -> object:
    join = running.job.join
    return None if join is None else join(running.answers)


_JOINING = Stages.chain(_join)
_JOINED = -1  # the index of the chunk that joins the others' answers


class Dispatcher:
    """Decides what runs. Not safe for threads: share one under a lock only."""

    def __init__(self, executors: int, rules: QueueRules | None = None) -> None:
        self.counts = DispatchCounts()
        self.closed = False
        self.pairs: list[QueuePair] = []
        self._reserved: dict[Hashable, QueuePair] = {}
        self._unfinished: dict[int, RunningJob] = {}
        self._deadlines: Heap[RunningJob] = Heap()
        self._numbers = 0
        self._slots = 0
        self._out = Effects()
        self.shared = self._open(SHARED, executors, rules or QueueRules())

    # Questions.

    def collect(self) -> Effects:
        """Return the effects of the events since the last call."""
        if not self._out:
            return NOTHING
        out, self._out = self._out, Effects()
        return out

    def pair_of(self, key: Hashable) -> QueuePair:
        """Return the pair of queues that serves a key."""
        return self._reserved.get(key, self.shared) if self._reserved else self.shared

    @property
    def unfinished(self) -> int:
        """The number of jobs that are not over."""
        return len(self._unfinished)

    @property
    def next_deadline(self) -> float:
        """The earliest deadline of a job that is not over, infinity when there is none."""
        return self._deadlines.rank()[0]

    # Events.

    def submit(self, job: Job, ticket: object, now: float) -> RunningJob:
        """Accept a job, or raise `Overloaded` or `SchedulerClosed` and change nothing."""
        if self.closed:
            raise SchedulerClosed("this pool takes no more jobs", hint="it was shut down")
        pair = self.pair_of(job.key)
        if not pair.idle:
            self._admit(pair, job, now)
        self._numbers += 1
        running = RunningJob(job, pair, self._numbers, ticket, now)
        self._unfinished[running.number] = running
        pair.unfinished += 1
        self.counts.submitted += 1
        if job.deadline is not None:
            self._deadlines.push((job.deadline, running.number), running.number, running)
            if job.deadline <= now:
                self._expire(running, now)
                return running
        if pair.idle and len(job.chunks) == 1 and len(job.stages.first) == 1:
            # Nothing waits, so the queue has nothing to decide.
            self._wake(pair.idle.pop(), self._begin(running, 0, now), now)
            running.cursor = 1
        else:
            pair.fresh.add(running)
            self._fill(pair, now)
        return running

    def _admit(self, pair: QueuePair, job: Job, now: float) -> None:
        """Raise if there is no room for a job, even once jobs past their deadline are dropped."""
        asks = (job.key, job.priority, job.rows)
        if pair.is_full(*asks):
            self.tick(now)
        if not pair.is_full(*asks):
            return
        self.counts.refused += 1
        fresh, rules = pair.fresh, pair.rules
        wait = fresh.cost / max(1, len(pair.slots))
        raise Overloaded(
            "the queue is full",
            where=f"the queues of {pair.key!r}",
            found=f"{len(fresh)} of {rules.jobs} jobs and {fresh.rows} of {rules.rows} rows wait",
            hint=f"it should have drained in {wait:.3f} s; send the job again or elsewhere",
            retry_after=wait,
        )

    def finished(self, slot: Slot, value: object, now: float, spent: float | None = None) -> None:
        """A stage has returned; its executor gets its next run, or is idle.

        `spent` is the cost of the stage, for one that does not cost the time it took.
        """
        run = self._take_back(slot, now, spent)
        if run.chunk.running_job.over is None:
            self._advance(run, value, now)
        elif not run.chunk.running:
            self._close_chunk(run.chunk)
        self._feed(slot, now)

    def failed(self, slot: Slot, error: BaseException, now: float) -> None:
        """A stage has raised: its job is over, and only its job."""
        self._fail(slot, error, now)
        self._feed(slot, now)

    def died(self, slot: Slot, error: BaseException, now: float) -> None:
        """An executor has ended: its run has failed, and another executor takes its place."""
        self.counts.deaths += 1
        pair = slot.pair
        pair.slots.discard(slot)
        if slot in pair.idle:
            pair.idle.remove(slot)
        if slot.run is not None:
            self._fail(slot, _death(slot.run, error), now)
        if not (slot.retired or (pair.closing and not pair.unfinished)):
            self._hire(pair)
            self._fill(pair, now)
        self._forget(pair)

    def cancel(self, running: RunningJob, now: float) -> bool:
        """Cancel a job for its caller; return whether it was not over yet."""
        if running.over is None:
            self._end(running, State.CANCELLED, None, now)
        return running.over is State.CANCELLED

    def tick(self, now: float) -> None:
        """Time has passed: jobs whose deadline has come are over."""
        while self._deadlines.rank()[0] <= now:
            self._expire(self._deadlines.pop(), now)

    def reserve(self, key: Hashable, executors: int, rules: QueueRules) -> None:
        """Open queues of its own for this key; the jobs it has queued stay where they are."""
        if self.closed:
            raise SchedulerClosed("this pool takes no more reservations", hint="it was shut down")
        if key in self._reserved:
            raise BadJob("this key has a reservation already", found=repr(key))
        self._reserved[key] = self._open(key, executors, rules)

    def release(self, key: Hashable) -> None:
        """Send the key to the shared queues; its own close once the jobs in them are over."""
        pair = self._reserved.pop(key, None)
        if pair is None:
            raise BadJob("this key has no reservation", found=repr(key))
        pair.closing = True
        self._retire(pair)

    def close(self, now: float, *, drain: bool) -> None:
        """Accept no more jobs; finish those that were accepted, or drop them."""
        self.closed = True
        for pair in self.pairs:
            pair.closing = True
        if not drain:
            for running in tuple(self._unfinished.values()):
                self._end(running, State.CANCELLED, None, now)
        for pair in tuple(self.pairs):
            self._retire(pair)

    # Pairs of queues and their executors.

    def _open(self, key: Hashable, executors: int, rules: QueueRules) -> QueuePair:
        if executors < 1:
            raise BadJob(
                "a pair of queues needs at least one executor", found=f"executors={executors}"
            )
        pair = QueuePair(key, rules)
        self.pairs.append(pair)
        for _ in range(executors):
            self._hire(pair)
        return pair

    def _hire(self, pair: QueuePair) -> None:
        self._slots += 1
        slot = Slot(self._slots, pair)
        pair.slots.add(slot)
        pair.idle.append(slot)
        self._out.hires.append(slot)

    def _retire(self, pair: QueuePair) -> None:
        """End the idle executors of a closing pair of queues that has no jobs left."""
        if pair.closing and not pair.unfinished:
            for slot in pair.idle:
                slot.retired = True
                pair.slots.discard(slot)
            self._out.starts += pair.idle
            pair.idle = []
            self._forget(pair)

    def _forget(self, pair: QueuePair) -> None:
        if pair.closing and not pair.slots and pair in self.pairs:
            self.pairs.remove(pair)

    # What runs next.

    def _fill(self, pair: QueuePair, now: float) -> None:
        """Give stages that can run to idle executors."""
        while pair.idle:
            run = self._pick(pair, now)
            if run is None:
                return
            self._wake(pair.idle.pop(), run, now)

    def _feed(self, slot: Slot, now: float) -> None:
        """Give an executor that is awake its next run, and further runs to idle executors."""
        pair = slot.pair
        run = self._pick(pair, now)
        if run is not None:
            self._give(slot, run, now)
            if pair.idle:
                self._fill(pair, now)
        elif pair.closing and not pair.unfinished:
            slot.retired = True
            pair.slots.discard(slot)
            self._forget(pair)
        else:
            pair.idle.append(slot)

    def _pick(self, pair: QueuePair, now: float) -> Run | None:
        """Take out the next run: of started chunks first, and of no job that is over."""
        while True:
            run = pair.started.pop()
            if run is None:
                break
            if not self._late(run.chunk.running_job, now):
                return run
        while pair.fresh:
            running, index = pair.fresh.take(now)
            if not self._late(running, now):
                return self._begin(running, index, now)
            pair.fresh.refund(running)
        return None

    def _late(self, running: RunningJob, now: float) -> bool:
        deadline = running.job.deadline
        if deadline is None or now < deadline:
            return False
        self._expire(running, now)
        return True

    def _begin(self, running: RunningJob, index: int, now: float) -> Run:
        """Start a chunk and return its first run; other stages that can start are queued."""
        job = running.job
        chunk = RunningChunk(running, index, job.chunks[index], job.stages)
        running.open_chunks.append(chunk)
        if running.started is None:
            running.started = now
            self.counts.reached[State.STARTED] += 1
            self.counts.wait.record(now - running.arrival)
        first = job.stages.first
        for stage in first[1:]:
            running.pair.started.push(Run(chunk, stage))
        return Run(chunk, first[0])

    def _wake(self, slot: Slot, run: Run, now: float) -> None:
        self._give(slot, run, now)
        self._out.starts.append(slot)

    def _give(self, slot: Slot, run: Run, now: float) -> None:
        run.chunk.running += 1
        slot.since = now
        slot.run = run

    def _take_back(self, slot: Slot, now: float, cost: float | None = None) -> Run:
        run = slot.run
        assert run is not None, "an executor reported a stage that it was not given"
        slot.run = None
        spent = now - slot.since
        run.chunk.running -= 1
        run.chunk.spent += spent if cost is None else cost
        self.counts.busy += spent
        self.counts.stages += 1
        return run

    # How jobs go on and end.

    def _advance(self, run: Run, value: object, now: float) -> None:
        chunk, stages = run.chunk, run.chunk.stages
        last = len(stages.calls) - 1
        if run.stage == last:
            chunk.value = value
        chunk.left -= 1
        if not chunk.left:
            self._complete(chunk, now)
        elif stages.linear:
            chunk.running_job.pair.started.push(Run(chunk, run.stage + 1))
        else:
            self._release(chunk, stages.then[run.stage])

    def _release(self, chunk: RunningChunk, stages: tuple[int, ...]) -> None:
        """Queue those of these stages that wait for nothing more."""
        for stage in stages:
            chunk.waits[stage] -= 1
            if not chunk.waits[stage]:
                chunk.running_job.pair.started.push(Run(chunk, stage))

    def _complete(self, chunk: RunningChunk, now: float) -> None:
        """A chunk has its answer; after the last one the answers are joined and the job is done."""
        running = chunk.running_job
        self._close_chunk(chunk)
        if chunk.index == _JOINED:
            self._end(running, State.DONE, chunk.value, now)
            return
        running.answers[chunk.index] = chunk.value
        running.left -= 1
        if running.left:
            return
        if running.job.join is None:
            self._end(
                running, State.DONE, chunk.value if running.job.alone else running.answers, now
            )
            return
        joining = RunningChunk(running, _JOINED, running, _JOINING)
        running.open_chunks.append(joining)
        running.pair.started.push(Run(joining, 0))

    def _fail(self, slot: Slot, error: BaseException, now: float) -> None:
        chunk = self._take_back(slot, now).chunk
        if chunk.running_job.over is None:
            self._end(chunk.running_job, State.FAILED, error, now)
        elif not chunk.running:
            self._close_chunk(chunk)

    def _expire(self, running: RunningJob, now: float) -> None:
        late = now - (running.job.deadline or 0.0)
        step = "before its first stage" if running.started is None else "between stages"
        error = DeadlineExceeded(
            "the deadline passed before the job was done",
            found=f"it was dropped {step}, {late * 1e3:.3f} ms after its deadline",
            hint="allow more time, or send less work to this pool",
        )
        self._end(running, State.EXPIRED, error, now)

    def _end(self, running: RunningJob, state: State, value: object, now: float) -> None:
        """A job is over: drop what it has queued, return the buffers that no stage uses now."""
        running.over, running.value, running.end = state, value, now
        del self._unfinished[running.number]
        if running.job.deadline is not None:
            self._deadlines.discard(running.number)
        pair = running.pair
        if running.cursor < len(running.answers):
            pair.fresh.remove(running)
        for chunk in tuple(running.open_chunks):
            if not chunk.running:
                self._close_chunk(chunk)
        pair.unfinished -= 1
        self.counts.reached[state] += 1
        if state is State.DONE:
            self.counts.total.record(now - running.arrival)
        self._out.settled.append(running)
        self._retire(pair)

    def _close_chunk(self, chunk: RunningChunk) -> None:
        running = chunk.running_job
        running.open_chunks.remove(chunk)
        if chunk.index != _JOINED:
            # A job that did not wait was not charged yet; its key is charged the full cost here.
            running.pair.fresh.correct(running, chunk.spent - running.charge)
            self._out.ended.append(chunk)


def _death(run: Run, error: BaseException) -> ExecutorDied:
    died = ExecutorDied(
        "the executor that ran this job died and has been replaced",
        where=f"stage {run.stage} of chunk {run.chunk.index}",
        found=f"{type(error).__name__}: {error}",
        hint="a stage must raise exceptions derived from Exception",
    )
    died.__cause__ = error
    return died
