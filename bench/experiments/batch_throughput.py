"""How many rows a second, in blocks of 1 to 1,000, from one thread and from one per core?

All pipelines take turns, as in the paper, so nothing stays in cache because it was just used.
"""

from __future__ import annotations

from collections import defaultdict

from bench import machine
from bench.results import spread
from bench.session import Crew, Session

QUESTION = "Rows a second by size of block"


def measure(session: Session, crew: Crew) -> None:
    """Every size, in rounds."""
    callers = [count for count in session.plan.callers if count <= machine.cores()]
    for member in session.each(crew, "loading"):
        crew.load(session, member, crew.workload.count)
    sizes = [(batch, count) for count in callers for batch in session.plan.batches]
    for place, (batch, count) in enumerate(sizes):
        _size(session, crew, batch, count, 1 / (len(sizes) - place + 0.5))


def _size(session: Session, crew: Crew, batch: int, callers: int, share: float) -> None:
    rates: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    seconds = session.plan.seconds
    for _ in session.rounds(share):
        for member in session.each(crew, f"blocks of {batch}"):
            said = session.ask(
                crew, member, "throughput", batch=batch, seconds=seconds, callers=callers
            )
            if said is not None:
                rates[member.name].append(said["rows"] / said["seconds"])
                cpu[member.name].append(1e6 * said["cpu_seconds"] / said["rows"])
    for who, found in rates.items():
        where = (crew.workload.name, who)
        metric = f"rows_{callers}_callers"
        values = spread(found)
        session.record("batch_throughput", *where, metric, unit="rows/s", x=batch, **values)
        values = spread(cpu[who])
        metric = f"cpu_{callers}_callers"
        session.record("batch_throughput", *where, metric, unit="µs/row", x=batch, **values)
