"""Thousands of small plans in one process: memory, loading, latency.

Scaled columns and a logistic regression, each with fitted numbers of its own.
"""

from __future__ import annotations

from bench.crew import Absent, Member
from bench.experiments.memory import MIB
from bench.histogram import Histogram
from bench.session import Session
from bench.workload import Spec, saved

QUESTION = "1,000 to 20,000 small plans in one process"
COUNTS = (1000, 5000, 20000)
WHO = ("pretzel", "onnxruntime", "sklearn")


def run(session: Session) -> None:
    """Each number of plans in a fresh process."""
    for count in COUNTS:
        for who in WHO:
            if who not in session.plan.contestants:
                continue
            if session.clock.late and count > COUNTS[0]:
                session.absent("scale", who, f"{count} plans: no time was left")
                continue
            session.progress.step(f"scale: {count} plans, {who}")
            try:
                _measure_one(session, who, count)
            except Absent as problem:
                session.absent("scale", who, str(problem))


def _measure_one(session: Session, who: str, count: int) -> None:
    workload = saved(Spec("lin", count, 1.0, session.plan.specs[0].seed))
    folder, numbers = str(workload.folder), list(range(count))
    with Member(who) as member:
        member.ask("prepare", folder=folder, count=count)
    with Member(who) as member:
        empty = member.ask("memory")
        load = member.ask("load", folder=folder, numbers=numbers, count=count)
        cold = Histogram(member.ask("first_calls", start=0)["times"])
        found = member.ask("memory")
        hot = Histogram.of_json(member.ask("hot", calls=5, warm=2, seconds=10.0)["times"])
    where = ("scale", "lin", who)
    session.record(*where, "load", value=load["seconds"], unit="s", x=count)
    session.record(*where, "rss", value=found["rss"] / MIB, unit="MiB", x=count)
    added = (found["rss"] - empty["rss"]) / MIB
    session.record(*where, "added", value=added, unit="MiB", x=count)
    for name, times in (("cold", cold), ("hot", hot)):
        for metric, share in (("p50", 0.5), ("p99", 0.99)):
            value = times.percentile(share) / 1e3
            session.record(*where, f"{name}_{metric}", value=value, unit="µs", x=count)
