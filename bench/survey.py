"""The order of a run: each workload with its crew and phases, then what stands alone."""

from __future__ import annotations

from collections.abc import Sequence

from bench import experiments
from bench.session import Crew, Session


def run(session: Session, names: Sequence[str]) -> None:
    """Do the experiments of these names."""
    phases = [name for name in experiments.PHASES if name in names]
    if phases:
        for spec in session.plan.specs:
            with session.crew(spec.name) as crew:
                _phases(session, crew, phases)
    for name in experiments.ALONE:
        if name in names:
            experiments.find(name).run(session)


def _phases(session: Session, crew: Crew, phases: Sequence[str]) -> None:
    """Memory and loading first, in fresh processes; then answers are checked, then timed."""
    early = [name for name in phases if name in {"memory", "load_time"}]
    for name in early:
        experiments.find(name).measure(session, crew)
    check(session, crew)
    for name in phases:
        if name not in early:
            experiments.find(name).measure(session, crew)


def check(session: Session, crew: Crew) -> None:
    """Hold everybody's answers against scikit-learn's; what differs is shown, and still timed."""
    for member in session.each(crew, "answers"):
        if not crew.load(session, member, crew.workload.count):
            continue
        said = session.ask(crew, member, "check")
        if said is not None:
            note = f"{said['wrong']} of {said['rows']} rows differ" if said["wrong"] else ""
            where = (crew.workload.name, member.name)
            session.record("answers", *where, "worst", value=said["worst"], unit="", note=note)


def steps(members: int, rounds: int, sizes: int, phases: Sequence[str]) -> int:
    """How many steps the phases take, for the bar, with so many members of all crews."""
    weights = {
        "memory": 1,
        "load_time": 1,
        "latency": 1 + rounds,
        "batch_throughput": 1 + rounds * sizes,
        "cost": 1 + rounds,
    }
    return members * (1 + sum(weights.get(name, 0) for name in phases))
