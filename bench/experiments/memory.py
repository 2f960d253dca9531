"""How much memory do n pipelines take, loaded and asked once each?

Resident and proportional set size of the contestant's process. Both the total and the growth over
the empty process (libraries imported, nothing loaded) are recorded. Ours is measured once more
without its object store, on workloads whose pipelines share parameters.
"""

from __future__ import annotations

from bench.crew import Absent, Member
from bench.session import Crew, Session

QUESTION = "Memory of n loaded pipelines"
MIB = 1 << 20
#: Ours with a copy of every parameter for every plan, and the workloads where that is measured.
UNSHARED = "pretzel_unshared"
_SHARING = {"sa", "ac"}


def measure(session: Session, crew: Crew) -> None:
    """Load in steps and measure after each."""
    count = crew.workload.count
    points = sorted({n for n in session.plan.points if n < count} | {count})
    for member in session.each(crew, "memory"):
        _measure_one(session, crew, member, points)
        if member.name == "pretzel" and crew.workload.name in _SHARING:
            _unshared(session, crew, points)


def _unshared(session: Session, crew: Crew, points: list[int]) -> None:
    """Measure ours without the object store, in a separate process."""
    try:
        with Member("pretzel", options={"store": False}) as member:
            member.name = UNSHARED
            _measure_one(session, Crew(crew.workload, [member]), member, points)
    except Absent as problem:
        session.absent(crew.workload.name, UNSHARED, str(problem))


def _measure_one(session: Session, crew: Crew, member: Member, points: list[int]) -> None:
    empty = session.ask(crew, member, "memory")
    if empty is None:
        return
    _record(session, crew, member, 0, empty, empty)
    for point in points:
        if not crew.load(session, member, point):
            return
        now = session.ask(crew, member, "memory")
        if now is None:
            return
        _record(session, crew, member, point, now, empty)
    said = session.ask(crew, member, "sizes")
    if said and said["unique"] is not None:
        where = (crew.workload.name, member.name)
        size = said["unique"] / MIB
        session.record("memory", *where, "unique", value=size, unit="MiB", x=points[-1])


def _record(
    session: Session,
    crew: Crew,
    member: Member,
    point: int,
    found: dict[str, int],
    empty: dict[str, int],
) -> None:
    sizes = {
        "rss": found["rss"],
        "pss": found["pss"],
        "private": found["private"],
        "added": found["rss"] - empty["rss"],
        "peak": found["peak"],
    }
    for metric, size in sizes.items():
        where = (crew.workload.name, member.name)
        session.record("memory", *where, metric, value=size / MIB, unit="MiB", x=point)
