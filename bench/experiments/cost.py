"""What does a prediction cost: processor time, and energy if the machine reports it?"""

from __future__ import annotations

from collections import defaultdict

from bench.results import spread
from bench.session import Crew, Session

QUESTION = "Processor time of a single row"


def measure(session: Session, crew: Crew) -> None:
    """Single rows of all pipelines in turn."""
    for member in session.each(crew, "loading"):
        crew.load(session, member, crew.workload.count)
    cpu: dict[str, list[float]] = defaultdict(list)
    energy: dict[str, list[float]] = defaultdict(list)
    for _ in session.rounds():
        for member in session.each(crew, "cost"):
            said = session.ask(crew, member, "cost", seconds=session.plan.seconds)
            if said is None:
                continue
            cpu[member.name].append(1e6 * said["cpu_seconds"] / said["calls"])
            if said["joules"] is not None:
                energy[member.name].append(1e6 * said["joules"] / said["calls"])
    for metric, found in (("cpu", cpu), ("joules", energy)):
        unit = "µs/row" if metric == "cpu" else "µJ/row"
        for who, values in found.items():
            where = (crew.workload.name, who)
            session.record("cost", *where, metric, unit=unit, **spread(values))
