"""The order of a run: each workload with its phases, then separate experiments."""

from __future__ import annotations

from collections.abc import Sequence

from bench import experiments
from bench.clock import Needs
from bench.contestants import find
from bench.session import Crew, Plan, Session

#: Assumed needs of parts that were never measured, in seconds.
_ALONE = {
    "end_to_end": Needs(60, 15),
    "heavy_load": Needs(240, 70),
    "scale": Needs(150),
    "ablations": Needs(140, 10),
    "reservation": Needs(25),
}


def parts(plan: Plan, names: Sequence[str]) -> dict[str, Needs]:
    """The parts of a run in order, each with an assumed need."""
    needs: dict[str, Needs] = {}
    if any(name in names for name in experiments.PHASES):
        for spec in plan.specs:
            members = sum(spec.name in find(name).workloads for name in plan.contestants)
            sizes = len(plan.batches) * len(plan.callers)
            each = 0.6 * plan.turn + (sizes + 1) * plan.seconds
            needs[spec.name] = Needs(members * (4 + 0.03 * spec.count + each), members * each)
    return needs | {name: _ALONE[name] for name in experiments.ALONE if name in names}


def run(session: Session, names: Sequence[str]) -> None:
    """Run these experiments, and record each complete part."""
    phases = [name for name in experiments.PHASES if name in names]
    for part in parts(session.plan, names):
        if part in session.run.done:
            continue
        if not session.clock.begin(part):
            session.absent(part, "everybody", "no time was left: give it more with --budget")
            continue
        if part in experiments.ALONE:
            experiments.find(part).run(session)
        else:
            with session.crew(part) as crew:
                early = [name for name in phases if name in {"memory", "load_time"}]
                for name in early:
                    experiments.find(name).measure(session, crew)
                check(session, crew)
                for name in phases:
                    if name not in early:
                        experiments.find(name).measure(session, crew)
        session.finish(part)


def check(session: Session, crew: Crew) -> None:
    """Compare all answers to scikit-learn's; differences are recorded, and still timed."""
    for member in session.each(crew, "answers"):
        if not crew.load(session, member, crew.workload.count):
            continue
        said = session.ask(crew, member, "check")
        if said is not None:
            note = f"{said['wrong']} of {said['rows']} rows differ" if said["wrong"] else ""
            where = (crew.workload.name, member.name)
            session.record("answers", *where, "worst", value=said["worst"], unit="", note=note)
