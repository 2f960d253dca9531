"""Does load on other plans slow down a plan with an executor of its own?

Blocks of 100 rows of one model, one after the other, while the others are offered twice the
capacity; with and without a reservation, and without other load.
"""

from __future__ import annotations

from bench.experiments.heavy_load import capacity
from bench.histogram import Histogram
from bench.session import Session

QUESTION = "Latency of a model with an executor of its own under twice the load"


def run(session: Session) -> None:
    """Measure with the regression pipelines, ours only: no other contestant can reserve."""
    with session.crew("ac", ["pretzel"]) as crew:
        for member in session.each(crew, "reservation"):
            if not crew.load(session, member, crew.workload.count):
                return
            most = capacity(session, crew, member)
            if most is None:
                return
            for name, load, reserve in (
                ("alone", 0.0, False),
                ("among others", 2.0, False),
                ("reserved", 2.0, True),
            ):
                seconds = max(4 * session.plan.seconds, 0.5)
                said = session.ask(
                    crew, member, "paced", rate=load * most, seconds=seconds, reserve=reserve
                )
                if said is None:
                    return
                times = Histogram.of_json(said["times"])
                for metric, share in (("p50", 0.5), ("p99", 0.99)):
                    value = times.percentile(share) / 1e6
                    session.record("reservation", "ac", name, metric, value=value, unit="ms")
