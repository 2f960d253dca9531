"""How long does one row take, cold and hot, over all pipelines?

Cold is the first call of a pipeline in its process. Hot are calls in bursts, one pipeline after
the other: 10 that are not counted, then 100 (fewer of slow ones), again in each round. They go
through 20 rows, so of the calls that count 10 have a row that the pipeline has not seen in this
burst. The 99th percentile is over all calls of all pipelines; the paper's figure, the 99th
percentile over pipelines of each one's mean, stands beside it.
"""

from __future__ import annotations

import numpy as np

from bench.histogram import Histogram
from bench.results import spread
from bench.session import Crew, Session

QUESTION = "Latency of one row, cold and hot"


def measure(session: Session, crew: Crew) -> None:
    """Measure in rounds, in which every contestant takes a turn."""
    for member in session.each(crew, "first calls"):
        if crew.load(session, member, crew.workload.count):
            times = crew.first_calls.get(member.name)
            if times:
                _times(session, crew.workload.name, member.name, "cold", [Histogram(times)])
    rounds: dict[str, list[tuple[Histogram, list[float]]]] = {}
    for number in session.rounds(0.35):
        for member in session.each(crew, f"rows, round {number + 1}"):
            plan = session.plan
            said = session.ask(
                crew, member, "hot", calls=plan.calls, warm=plan.warm, seconds=plan.turn
            )
            if said is not None:
                found = Histogram.of_json(said["times"]), said["means"]
                rounds.setdefault(member.name, []).append(found)
    for who, each in rounds.items():
        _hot(session, crew.workload.name, who, each)


def _hot(
    session: Session, workload: str, who: str, rounds: list[tuple[Histogram, list[float]]]
) -> None:
    _times(session, workload, who, "hot", [times for times, _ in rounds])
    over = [float(np.percentile(means, 99)) / 1e3 for _, means in rounds]
    session.record("latency", workload, who, "hot_p99_of_means", unit="µs", **spread(over))


def _times(session: Session, workload: str, who: str, kind: str, rounds: list[Histogram]) -> None:
    """Median, 99th percentile and the worst: of each round, and all rounds' histogram."""
    every = Histogram()
    for each in rounds:
        every.merge(each)
    for metric, share in (("p50", 0.5), ("p99", 0.99), ("worst", 1.0)):
        values = spread([each.percentile(share) / 1e3 for each in rounds])
        kept = {"histogram": every.as_json()} if metric == "p50" else {}
        session.record("latency", workload, who, f"{kind}_{metric}", unit="µs", **values, **kept)
