"""Any sequence of events: nothing is lost, nothing happens twice, everything ends.

`Simulation.check` holds the rules that must be true after every event; this file holds those
about whole lives of jobs.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler import ExecutorDied, Overloaded, SchedulerClosed, State
from scheduler.job import Stages
from scheduler.queues import QueueRules
from tests.scheduler.simulation import Broken, Play, Simulation, _never

SHAPES = [
    Stages.chain(_never),
    Stages.chain(_never, _never),
    Stages.chain(_never, _never, _never),
    Stages.graph((_never, ()), (_never, (0,)), (_never, (0,)), (_never, (1, 2))),
    Stages.graph((_never, ()), (_never, ()), (_never, (0, 1))),
    Stages.graph((_never, ()), (_never, (0,)), (_never, ())),
]
SECONDS = st.sampled_from([0.0, 0.001, 0.01, 0.3])
RULES = st.builds(
    QueueRules,
    jobs=st.sampled_from([0, 1, 3, 100]),
    rows=st.sampled_from([0, 5, 1000]),
    patience=st.sampled_from([0.0, 0.1, 100.0]),
    one_in=st.sampled_from([1, 2, 8]),
    burst=st.sampled_from([0.0, 0.01, 100.0]),
)


class Events(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.simulation: Simulation | None = None
        self.plays: list[Play] = []
        self.refused = 0
        self.reserved: set[str] = set()

    @property
    def sim(self) -> Simulation:
        assert self.simulation is not None
        return self.simulation

    @precondition(lambda self: self.simulation is None)
    @rule(executors=st.integers(1, 3), rules=RULES)
    def open(self, executors: int, rules: QueueRules) -> None:
        self.simulation = Simulation(executors, rules)

    @precondition(lambda self: self.simulation is not None)
    @rule(
        data=st.data(),
        shape=st.sampled_from(SHAPES),
        chunks=st.integers(1, 4),
        key=st.sampled_from("abc"),
        priority=st.integers(-1, 1),
        within=st.none() | st.sampled_from([-0.1, 0.005, 0.2, 5.0]),
        joined=st.booleans(),
        bad=st.sampled_from([None, None, None, "raise", "die"]),
    )
    def submit(
        self,
        *,
        data: st.DataObject,
        shape: Stages,
        chunks: int,
        key: str,
        priority: int,
        within: float | None,
        joined: bool,
        bad: str | None,
    ) -> None:
        count = len(shape.calls)
        seconds = data.draw(st.tuples(*[SECONDS] * count))
        place = st.tuples(st.integers(0, chunks - 1), st.integers(0, count - 1))
        try:
            play = self.sim.submit(
                len(self.plays),
                seconds,
                chunks=chunks,
                key=key,
                priority=priority,
                within=within,
                stages=shape,
                rows=data.draw(st.integers(0, 6)),
                cost=data.draw(st.none() | SECONDS),
                join=tuple if joined else None,
                fate={data.draw(place): bad} if bad else {},
            )
        except Overloaded:
            pair = self.sim.core.pair_of(key)
            assert not pair.idle, "refused while an executor is idle"
            self.refused += 1
        except SchedulerClosed:
            assert self.sim.core.closed
        else:
            self.plays.append(play)

    @precondition(lambda self: self.simulation is not None)
    @rule(seconds=st.sampled_from([0.0, 0.001, 0.02, 1.0]), look=st.booleans())
    def advance(self, *, seconds: float, look: bool) -> None:
        self.sim.run(seconds)
        if look:
            self.sim.tick()
            late = [play for play in self._unfinished() if self._deadline(play) <= self.sim.now]
            assert late == []

    @precondition(lambda self: self.plays)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        play = data.draw(st.sampled_from(self.plays))
        before = play.end
        assert self.sim.cancel(play) == (play.end is State.CANCELLED)
        assert play.end is (before or State.CANCELLED)

    @precondition(lambda self: self.simulation is not None and not self.simulation.core.closed)
    @rule(key=st.sampled_from("abc"), executors=st.integers(1, 2))
    def reserve_or_release(self, key: str, executors: int) -> None:
        if key in self.reserved:
            self.sim.release(key)
        else:
            self.sim.reserve(key, executors, QueueRules(jobs=3))
        self.reserved ^= {key}

    @precondition(lambda self: len(self.plays) > 5)
    @rule(drain=st.booleans())
    def close(self, *, drain: bool) -> None:
        self.sim.close(drain=drain)
        if not drain:
            assert not self._unfinished()

    @invariant()
    def jobs_are_counted_once(self) -> None:
        if self.simulation is None:
            return
        counts = self.sim.core.counts
        assert counts.submitted == len(self.plays)
        assert counts.refused == self.refused
        finals = [State.DONE, State.FAILED, State.EXPIRED, State.CANCELLED]
        over = sum(counts.reached[state] for state in finals)
        assert over == len(self.sim.settled) == len(self.plays) - len(self._unfinished())
        assert self.sim.core.unfinished == len(self._unfinished())

    @invariant()
    def queues_add_up(self) -> None:
        if self.simulation is None:
            return
        for pair in self.sim.core.pairs:
            waiting = [
                play.running
                for play in self._unfinished()
                if play.running is not None
                and play.running.pair is pair
                and play.running.cursor < len(play.running.answers)
            ]
            assert len(pair.fresh) == len(waiting)
            rows = sum(
                running.job.rows_of(n)
                for running in waiting
                for n in range(running.cursor, len(running.answers))
            )
            assert pair.fresh.rows == rows
            assert sum(map(len, pair.fresh._levels.values())) == len(waiting)

    def teardown(self) -> None:
        if self.simulation is None:
            return
        self.sim.close(drain=True)
        self.sim.run()
        for play in self.plays:
            self._check_life(play)
        assert not self.sim.held, "buffers were not given back"
        assert not self.sim.threads, "executors did not end"
        assert not self.sim.core.pairs
        assert not self.sim.core._deadlines

    def _unfinished(self) -> list[Play]:
        return [play for play in self.plays if play.end is None]

    def _deadline(self, play: Play) -> float:
        assert play.running is not None
        return float("inf") if play.running.job.deadline is None else play.running.job.deadline

    def _check_life(self, play: Play) -> None:
        assert play.running is not None
        job = play.running.job
        assert len(play.ran) == len(set(play.ran)), "a stage ran twice"
        every = {(n, stage) for n in range(len(job.chunks)) for stage in range(len(play.seconds))}
        assert set(play.ran) <= every
        if play.end is State.DONE:
            last = len(play.seconds) - 1
            answers = [(play.name, n, last) for n in range(len(job.chunks))]
            assert play.value == (tuple(answers) if job.join else answers)
            assert set(play.ran) == every
            assert not play.fate, "a job with a bad stage cannot be done"
        elif play.end is State.FAILED:
            assert isinstance(play.value, Broken | ExecutorDied)
            assert set(play.fate) <= set(play.ran)
        elif play.end is State.EXPIRED:
            assert play.ended_at is not None
            assert play.ended_at >= self._deadline(play)
        else:
            assert play.end is State.CANCELLED


Events.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestEvents = Events.TestCase
