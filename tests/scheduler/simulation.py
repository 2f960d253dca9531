"""A pool without threads: the dispatcher, a clock that tests move, and executors played by a loop.

After every event it checks what must always hold, so any test that uses it tests that too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from math import inf

from scheduler.clock import SimulatedClock
from scheduler.dispatch import Dispatcher
from scheduler.job import Job, Stages, State
from scheduler.queues import QueuePair, QueueRules, Run, RunningChunk, RunningJob, Slot

JOIN = -1


class Torn(BaseException):
    """What kills an executor."""


class Broken(Exception):
    """What a stage raises."""


@dataclass
class Play:
    """A job as the simulation plays it, and what became of it."""

    name: object
    seconds: tuple[float, ...]  # per stage
    fate: dict[tuple[int, int], str] = field(default_factory=dict)  # (chunk, stage) -> raise | die
    running: RunningJob | None = None
    ends: list[State] = field(default_factory=list)
    value: object = None
    started_at: float | None = None
    ended_at: float | None = None
    ran: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> State | None:
        """How it ended, None while it is under way."""
        assert len(self.ends) <= 1, f"{self.name} was settled twice"
        return self.ends[0] if self.ends else None


class Simulation:
    """Executors, callers and time, played one event after the other."""

    def __init__(self, executors: int = 1, rules: QueueRules | None = None) -> None:
        self.clock = SimulatedClock()
        self.core = Dispatcher(executors, rules)
        self.threads: set[Slot] = set()
        self.until: dict[Slot, float] = {}  # executors that run something, and when they are done
        self.held: set[RunningChunk] = set()  # chunks with a buffer
        self.most_held = 0
        self.order: list[object] = []  # names of jobs, in the order in which their chunks started
        self.settled: list[Play] = []
        self._apply(None)

    # What callers do.

    def submit(
        self,
        name: object,
        seconds: float | Sequence[float] = 1.0,
        *,
        chunks: int = 1,
        key: Hashable = None,
        priority: int = 0,
        within: float | None = None,
        stages: Stages | None = None,
        rows: int | None = None,
        cost: float | None = None,
        join: Callable[[list[object]], object] | None = None,
        fate: dict[tuple[int, int], str] | None = None,
    ) -> Play:
        """Submit a job whose stages take `seconds` each."""
        times = (seconds,) if isinstance(seconds, (int, float)) else tuple(seconds)
        stages = stages or Stages.chain(*[_never] * len(times))
        play = Play(name, times, fate or {})
        job = Job.of(
            stages,
            [(play, n) for n in range(chunks)],
            rows=rows,
            key=key,
            priority=priority,
            deadline=None if within is None else self.now + within,
            cost=sum(times) * chunks if cost is None else cost,
            room=64,
            join=join,
        )
        try:
            play.running = self.core.submit(job, play, self.now)
        finally:
            self._apply(None)
        return play

    def cancel(self, play: Play) -> bool:
        """Give a job up."""
        assert play.running is not None
        done = self.core.cancel(play.running, self.now)
        self._apply(None)
        return done

    def reserve(self, key: Hashable, executors: int = 1, rules: QueueRules | None = None) -> None:
        """Give a key queues of its own."""
        self.core.reserve(key, executors, rules or QueueRules())
        self._apply(None)

    def release(self, key: Hashable) -> None:
        """Take a key's queues away."""
        self.core.release(key)
        self._apply(None)

    def close(self, *, drain: bool) -> None:
        """Shut down."""
        self.core.close(self.now, drain=drain)
        self._apply(None)

    # Time.

    @property
    def now(self) -> float:
        """What time it is."""
        return self.clock.now()

    def tick(self) -> None:
        """Let the deadlines be looked at."""
        self.core.tick(self.now)
        self._apply(None)

    def step(self) -> bool:
        """Move on to the next moment at which a stage ends; return whether there was one."""
        if not self.until:
            return False
        slot = min(self.until, key=lambda each: (self.until[each], each.number))
        self.clock.advance(max(0.0, self.until[slot] - self.now))
        self._end(slot)
        return True

    def run(self, seconds: float = inf) -> None:
        """Play until this much time has passed, or until nothing runs any more."""
        until = self.now + seconds
        for _ in range(100_000):
            if not self.until or min(self.until.values()) > until:
                break
            self.step()
        else:
            raise AssertionError("this simulation does not end")
        if until < inf:
            self.clock.advance(max(0.0, until - self.now))

    # Executors.

    def _end(self, slot: Slot) -> None:
        del self.until[slot]
        run = slot.run
        assert run is not None
        play = run.chunk.running_job.ticket
        assert isinstance(play, Play)
        fate = play.fate.get((run.chunk.index, run.stage))
        if fate == "raise":
            self.core.failed(slot, Broken(play.name), self.now)
        elif fate == "die":
            self.threads.discard(slot)
            self.core.died(slot, Torn(play.name), self.now)
        elif run.chunk.index == JOIN:
            self.core.finished(slot, run.chunk.stages.calls[0](run.chunk.data, None), self.now)
        else:
            self.core.finished(slot, (play.name, run.chunk.index, run.stage), self.now)
        self._apply(slot)

    def _apply(self, awake: Slot | None) -> None:
        """Do what the dispatcher asks for, as the pool would."""
        effects = self.core.collect()
        self.threads.update(effects.hires)
        for chunk in effects.ended:
            assert not chunk.running
            self.held.discard(chunk)
        begun = [slot for slot in effects.starts if not slot.retired]
        assert all(slot.run is not None for slot in begun)
        if awake is not None and awake in self.threads and awake.run is not None:
            begun.insert(0, awake)
        for slot in begun:
            self._begin(slot)
        self._check_order([slot.run for slot in begun if slot.run is not None])
        for running in effects.settled:
            self._settle(running)
        self.threads = {slot for slot in self.threads if not slot.retired}
        self.check()

    def _begin(self, slot: Slot) -> None:
        run = slot.run
        assert run is not None
        chunk, play = run.chunk, run.chunk.running_job.ticket
        assert slot in self.threads, "an executor without a thread was given work"
        assert slot not in self.until, "an executor was given work while it works"
        assert chunk.running_job.over is None, "something that is over runs"
        assert isinstance(play, Play)
        if chunk.index == JOIN:
            self.until[slot] = self.now
            return
        play.ran.append((chunk.index, run.stage))
        waits = chunk.stages.after[run.stage]
        assert {(chunk.index, n) for n in waits} <= set(play.ran), "a stage ran before its inputs"
        if chunk not in self.held:
            self.held.add(chunk)
            self.order.append(play.name)
            self.most_held = max(self.most_held, len(self.held))
        if play.started_at is None:
            play.started_at = self.now
        self.until[slot] = self.now + play.seconds[run.stage]

    def _settle(self, running: RunningJob) -> None:
        play = running.ticket
        assert isinstance(play, Play)
        assert running.over is not None
        play.ends.append(running.over)
        play.value, play.ended_at = running.value, self.now
        self.settled.append(play)

    # What must always hold.

    def check(self) -> None:
        """Check what holds between any two events."""
        for pair in self.core.pairs:
            if pair.idle:
                assert not pair.fresh, "an executor is idle while there is new work"
                assert not _live(pair), "an executor is idle while started work waits"
            assert len(pair.fresh) <= max(pair.rules.jobs, 1)
            assert pair.fresh.rows >= 0
            assert pair.fresh.cost > -1e-6
            assert _is_booked(pair), "each key's share of what waits is not the whole"
            assert len(_open_chunks(pair, self.held)) <= len(pair.slots), "too many buffers"
            assert all(slot.run is None for slot in pair.idle)
            assert pair.slots <= self.threads

    def _check_order(self, begun: list[Run]) -> None:
        """New work did not start while started work was waiting."""
        for place, run in enumerate(begun):
            if run.chunk.left < len(run.chunk.stages.calls) or run.stage or _joins(run):
                continue
            later = [each.chunk for each in begun[place:]]
            waiting = [each for each in _live(run.chunk.running_job.pair) if each not in later]
            assert waiting == [], "new work started before started work"


def _is_booked(pair: QueuePair) -> bool:
    levels = pair.fresh._levels.values()
    by_level, by_key = sum(each.cost for each in levels), sum(sum(e.costs.values()) for e in levels)
    return abs(by_level - pair.fresh.cost) < 1e-3 and abs(by_key - pair.fresh.cost) < 1e-3


def _joins(run: Run) -> bool:
    return run.chunk.index == JOIN


def _never(_: object, __: object) -> object:
    raise AssertionError("stages of a simulation are not called")


def _live(pair: QueuePair) -> list[RunningChunk]:
    """The chunks of which a stage waits in the high queue."""
    runs = [entry[-1] for entry in pair.started._entries]
    return [run.chunk for run in runs if run.chunk.running_job.over is None]


def _open_chunks(pair: QueuePair, held: set[RunningChunk]) -> list[RunningChunk]:
    return [chunk for chunk in held if chunk.running_job.pair is pair]
