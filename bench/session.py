"""One run: its workloads, contestants and settings, the running contestants, and its results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TextIO

from bench import machine
from bench.clock import Clock, Took
from bench.contestants import NAMES, find
from bench.crew import Absent, Member
from bench.results import Record, Run
from bench.servers import SERVERS
from bench.workload import Saved, Spec, cache_folder, saved

_BAR = 24


class Progress:
    """Redraws a line on a terminal; writes few lines elsewhere."""

    def __init__(self, clock: Clock, stream: TextIO | None = None) -> None:
        self._clock = clock
        self._stream = stream or sys.stderr
        self._shown = -10.0

    def step(self, what: str) -> None:
        """Show the next step."""
        now = self._clock.elapsed
        if self._stream.isatty():
            self._stream.write("\r\x1b[K" + self.line(what))
        elif now - self._shown >= 10:
            self._shown = now
            self._stream.write(self.line(what) + "\n")
        self._stream.flush()

    def line(self, what: str) -> str:
        """The bar, the time passed and left, what is being done."""
        now, left = self._clock.elapsed, self._clock.left()
        full = int(_BAR * now / (now + left)) if now + left > 0 else 0
        bar = "#" * full + "." * (_BAR - full)
        return f"[{bar}] {_clock(now)}, {_clock(left)} left  {what[:60]}"

    def end(self) -> None:
        """Leave the line."""
        if self._stream.isatty():
            self._stream.write("\n")


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@dataclass(frozen=True)
class Plan:
    """The settings of a run."""

    specs: tuple[Spec, ...]
    contestants: tuple[str, ...] = NAMES
    rounds: int = 5
    calls: int = 100
    """Calls of each pipeline in each round, after `warm` calls that are not counted."""
    warm: int = 10
    turn: float = 3.0
    """Longest turn of a contestant in seconds; slow ones make fewer calls of each pipeline."""
    seconds: float = 0.5
    """Seconds of each measurement of throughput in each round."""
    batches: tuple[int, ...] = (1, 10, 100, 1000)
    callers: tuple[int, ...] = (1, 2)
    points: tuple[int, ...] = (1, 10, 25, 50, 100, 150, 200, 250, 500)
    """Numbers of pipelines at which memory is measured."""

    def spec(self, name: str) -> Spec:
        """The spec of a workload; a small one if the run has none of it."""
        for each in self.specs:
            if each.name == name:
                return each
        return replace(self.specs[0], name=name)


def took() -> Took:
    """The stored needs of parts on this machine."""
    return Took(cache_folder() / "took.json")


def took_key(plan: Plan, part: str) -> str:
    """A key of everything that a part's needs depend on, except the number of rounds."""
    sizes = " ".join(f"{each.name}{each.count}" for each in plan.specs if each.name == part)
    who = f"{len(plan.contestants)} contestants"
    return f"{part} {sizes} {who} {plan.turn:g} {plan.seconds:g}"


@dataclass
class Crew:
    """The contestants that serve one workload, alive side by side, each in its own process."""

    workload: Saved
    members: list[Member] = field(default_factory=list)
    loaded: dict[str, int] = field(default_factory=dict)
    load_seconds: dict[str, float] = field(default_factory=dict)
    #: Of the process's first pipeline, with which much comes that is there once.
    first_load: dict[str, float] = field(default_factory=dict)
    load_cpu: dict[str, float] = field(default_factory=dict)

    first_calls: dict[str, list[int]] = field(default_factory=dict)

    def load(self, session: Session, member: Member, upto: int) -> bool:
        """Let a member load the first `upto` pipelines and call each once; False if it failed."""
        have = self.loaded.get(member.name, 0)
        if upto <= have:
            return True
        folder, numbers = str(self.workload.folder), list(range(have, upto))
        count = self.workload.count
        said = session.ask(self, member, "load", folder=folder, numbers=numbers, count=count)
        first = said and session.ask(self, member, "first_calls", start=have)
        if not said or not first:
            return False
        self.first_calls.setdefault(member.name, []).extend(first["times"])
        took = self.load_seconds.get(member.name, 0.0) + said["seconds"]
        self.load_seconds[member.name] = took
        self.first_load.setdefault(member.name, said["first_seconds"])
        self.load_cpu[member.name] = self.load_cpu.get(member.name, 0.0) + said["cpu_seconds"]
        self.loaded[member.name] = upto
        return True


class Session:
    """The context of experiments: plan, results, clock."""

    def __init__(self, plan: Plan, run: Run, clock: Clock) -> None:
        self.plan, self.run, self.clock = plan, run, clock
        self.progress = Progress(clock)
        self.took = took()
        self.versions: dict[str, dict[str, str]] = {}

    def record(self, experiment: str, workload: str, who: str, metric: str, **more: Any) -> None:
        """Record a figure."""
        self.run.add(Record(experiment, workload, who, metric, **more))

    def finish(self, part: str) -> None:
        """Mark a part as complete: resuming skips it, and the next run knows its need."""
        self.run.finish(part)
        self.took.put(took_key(self.plan, part), self.clock.end())

    def absent(self, workload: str, who: str, why: str) -> None:
        """Record that a contestant is left out, and why."""
        self.record("absent", workload, who, "reason", value=None, unit="", note=why)

    def told(self, who: str, versions: dict[str, str]) -> None:
        """Record a contestant's versions once."""
        if self.versions.setdefault(who, versions) is versions:
            note = ", ".join(f"{key} {value}" for key, value in versions.items())
            self.record("versions", "", who, "versions", value=None, unit="", note=note)

    def workload(self, name: str) -> Saved:
        """A workload, trained if needed."""
        spec = self.plan.spec(name)
        self.progress.step(f"{name}: {spec.count} pipelines")
        return saved(spec, lambda: self.progress.step(f"training {name}"))

    def rounds(self, share: float = 1.0) -> Iterator[int]:
        """Numbers of rounds: all of them, or as many as fit into a share of the part's time."""
        return self.clock.rounds(self.plan.rounds, share)

    @contextmanager
    def crew(self, name: str, only: Sequence[str] | None = None, **options: Any) -> Iterator[Crew]:
        """All contestants of this workload, started and prepared; ended afterwards.

        The options are passed to every contestant.
        """
        workload = self.workload(name)
        crew = Crew(workload)
        try:
            for who in only or self.plan.contestants:
                member = self._started(who, workload, options)
                if member is not None:
                    crew.members.append(member)
            yield crew
        finally:
            for member in crew.members:
                member.close()

    def each(self, crew: Crew, what: str) -> Iterator[Member]:
        """The members, one after the other."""
        for member in list(crew.members):
            self.progress.step(f"{crew.workload.name}, {what}: {member.kind.title}")
            if member in crew.members:
                yield member

    def ask(self, crew: Crew, member: Member, do: str, **arguments: Any) -> dict[str, Any] | None:
        """A member's answer; None if it failed, which is recorded and removes it."""
        try:
            return member.ask(do, **arguments)
        except Absent as problem:
            self.absent(crew.workload.name, member.name, str(problem))
            crew.members.remove(member)
            return None

    def _started(self, who: str, workload: Saved, options: dict[str, Any]) -> Member | None:
        if workload.name not in find(who).workloads:
            return None
        self.progress.step(f"{workload.name}: {find(who).title} converts its models")
        try:
            self._prepare(who, workload)
            member = Member(who, options=options)
        except Absent as problem:
            self.absent(workload.name, who, str(problem))
            return None
        self.told(who, member.versions)
        return member

    def _prepare(self, who: str, workload: Saved) -> None:
        """Convert in a separate process, so that the measured one is fresh."""
        with Member(who) as member:
            folder = str(workload.folder)
            said = member.ask("prepare", folder=folder, count=workload.count)
            if said["refused"]:
                count, reason = len(said["refused"]), next(iter(said["refused"].values()))
                raise Absent(f"{count} of {workload.count} models: {reason}")
            if who == "pretzel":  # fills the code cache, if plans are older than it
                numbers = list(range(workload.count))
                member.ask("load", folder=folder, numbers=numbers, count=workload.count)


def about(kind: str, plan: Plan) -> dict[str, Any]:
    """The first line of a run's file."""
    servers = {name: kind.settings for name, kind in SERVERS.items()}
    from importlib.metadata import version

    return {
        "kind": kind,
        "machine": machine.fingerprint(),
        "specs": [vars(each) for each in plan.specs],
        "contestants": {name: find(name).title for name in plan.contestants},
        "settings": (servers | {name: find(name).settings for name in plan.contestants}),
        "rounds": plan.rounds,
        "calls": plan.calls,
        "method": METHOD,
        "packages": {
            name: version(name) for name in ("numpy", "numba", "llvmlite", "scikit-learn")
        },
    }


METHOD = (
    "Every contestant runs in its own process, with one thread and OMP_NUM_THREADS=1 unless said "
    "otherwise; they take turns within each round, so that all see the same machine. Inputs are "
    "laid out as each library likes them before the clock starts. Times are of single calls with "
    "perf_counter_ns, all kept in histograms one per cent wide, the garbage collector held off "
    "during bursts. The hot 99th percentile is over all calls of all pipelines, of which every "
    "tenth has a row that its pipeline has not seen in this burst; the paper's, over each "
    "pipeline's mean, has a table of its own. Cold is each pipeline's first call in its process. "
    "Figures are medians over rounds, with the extremes."
)
