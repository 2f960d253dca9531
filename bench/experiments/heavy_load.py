"""What happens from a quarter of a process' capacity to twice of it?

As in the paper: models popular by Zipf's law with exponent 2, half of them asked for one row at a
time, half for blocks of 100. Load is open-loop: arrival times are fixed, and waits count from them,
also for requests without an answer at the end; refused requests do not wait. Each contestant is
offered multiples of its own capacity. All have as many threads as there are cores: ours are the
scheduler's executors, the others' a pool.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from bench.crew import Member
from bench.histogram import Histogram
from bench.machine import cores
from bench.results import spread
from bench.session import Crew, Session

QUESTION = "Throughput and latency under 0.25 to 2 times the capacity"
CONTESTANTS = ("pretzel", "sklearn", "onnxruntime")
#: Recorded metrics: the name, the key in a worker's answer, the unit.
RATES = (
    ("asked", "asked", "requests/s"),
    ("answered", "requests", "requests/s"),
    ("refused", "refused", "requests/s"),
    ("failed", "failed", "requests/s"),
    ("rows", "rows", "rows/s"),
)
FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


def run(session: Session) -> None:
    """The two workloads of the paper."""
    names = [each.name for each in session.plan.specs if each.name in {"sa", "ac"}]
    who = [name for name in CONTESTANTS if name in session.plan.contestants]
    for name in names:
        with session.crew(name, who, executors=cores()) as crew:
            left = len(crew.members) * (len(names) - names.index(name))
            for member in session.each(crew, "load"):
                if session.clock.late:
                    session.absent(f"heavy_load, {name}", member.name, "no time was left")
                elif crew.load(session, member, crew.workload.count):
                    _curve(session, crew, member, 1 / left)
                left -= 1


def capacity(session: Session, crew: Crew, member: Member) -> float | None:
    """The highest rate at which nearly all requests are answered in time, found by trying.

    It ends after three rates in a row that were too high: a single one may be noise.
    """
    rate, seconds = 50.0, max(session.plan.seconds, 0.3)
    most, behind, seed = rate, 0, 0
    while behind < 3:
        said = session.ask(crew, member, "open_loop", rate=rate, seconds=seconds, seed=seed)
        if said is None:
            return None
        if said["requests"] >= 0.93 * said["asked"]:
            most, behind = rate, 0
        else:
            behind += 1
        rate, seed = 1.3 * rate, seed + 1
    return most


def _curve(session: Session, crew: Crew, member: Member, share: float) -> None:
    """Measure all factors in each round, so that a slow minute affects all of them."""
    most = capacity(session, crew, member)
    seconds = max(4 * session.plan.seconds, 0.5)
    by_factor: dict[float, list[dict[str, Any]]] = defaultdict(list)
    for number in session.rounds(share) if most else ():
        for factor in FACTORS:
            rate = factor * (most or 0.0)
            said = session.ask(
                crew, member, "open_loop", rate=rate, seconds=seconds, seed=2 + number
            )
            if said is None:
                return
            by_factor[factor].append(said)
    for factor, every in by_factor.items():
        where = ("heavy_load", crew.workload.name, member.name)
        for metric, key, unit in RATES:
            rates = spread([said[key] / said["seconds"] for said in every])
            session.record(*where, metric, unit=unit, x=factor, **rates)
        for kind in ("single", "blocks", "late"):
            times = [Histogram.of_json(said[kind]) for said in every if said[kind]["counts"]]
            for metric, part in (("p50", 0.5), ("p99", 0.99)) if times else ():
                waits = spread([each.percentile(part) / 1e6 for each in times])
                session.record(*where, f"{kind}_{metric}", unit="ms", x=factor, **waits)
