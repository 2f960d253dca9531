"""What happens from a quarter to twice of what a process can do?

As in the paper: models popular by Zipf's law with exponent 2, half of them asked for one row at a
time, half for blocks of 100. Load is open: requests come when they come, and waits count from
when each was due. Each contestant is offered multiples of its own capacity.
"""

from __future__ import annotations

from bench.crew import Member
from bench.histogram import Histogram
from bench.session import Crew, Session

QUESTION = "Throughput and latency under 0.25 to 2 times the capacity"
CONTESTANTS = ("pretzel", "sklearn", "onnxruntime")
FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)


def run(session: Session) -> None:
    """The two workloads of the paper."""
    names = [each.name for each in session.plan.specs if each.name in {"sa", "ac"}]
    who = [name for name in CONTESTANTS if name in session.plan.contestants]
    for name in names:
        with session.crew(name, who) as crew:
            for member in session.each(crew, "load"):
                if crew.load(session, member, crew.workload.count):
                    _curve(session, crew, member)


def capacity(session: Session, crew: Crew, member: Member) -> float | None:
    """The highest rate at which nearly all that is sent is answered in time: found by trying."""
    rate, seconds = 50.0, max(session.plan.seconds, 0.3)
    while True:
        said = session.ask(crew, member, "open_loop", rate=1.4 * rate, seconds=seconds, seed=1)
        if said is None:
            return None
        if said["requests"] < 0.93 * said["asked"]:
            return rate
        rate *= 1.4


def _curve(session: Session, crew: Crew, member: Member) -> None:
    most = capacity(session, crew, member)
    seconds = max(4 * session.plan.seconds, 0.5)
    if most is None:
        return
    for factor in FACTORS:
        said = session.ask(crew, member, "open_loop", rate=factor * most, seconds=seconds, seed=2)
        if said is None:
            return
        where = ("heavy_load", crew.workload.name, member.name)
        rates = {"asked": said["asked"], "answered": said["requests"], "refused": said["refused"]}
        for metric, count in rates.items():
            session.record(*where, metric, value=count / seconds, unit="requests/s", x=factor)
        session.record(*where, "rows", value=said["rows"] / seconds, unit="rows/s", x=factor)
        for kind in ("single", "blocks"):
            times = Histogram.of_json(said[kind])
            if len(times):
                for metric, share in (("p50", 0.5), ("p99", 0.99)):
                    value = times.percentile(share) / 1e6
                    session.record(*where, f"{kind}_{metric}", value=value, unit="ms", x=factor)
