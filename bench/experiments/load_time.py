"""How long does a fresh process take to load all pipelines from its own files?

Imports are counted apart. Ours finds its machine code in the code cache; `ablations` measures
without one.
"""

from __future__ import annotations

from bench.session import Crew, Session

QUESTION = "Seconds to load all pipelines in a fresh process"


def measure(session: Session, crew: Crew) -> None:
    """Load the remaining pipelines, and record the times of loading."""
    for member in session.each(crew, "loading"):
        if not crew.load(session, member, crew.workload.count):
            continue
        where = (crew.workload.name, member.name)
        count = crew.workload.count
        seconds = crew.load_seconds[member.name]
        note = f"imports {member.start_seconds:.2f} s"
        session.record("load_time", *where, "all", value=seconds, unit="s", x=count, note=note)
        first = crew.first_load[member.name]
        session.record("load_time", *where, "first", value=first, unit="s")
        each = 1e3 * seconds / count
        session.record("load_time", *where, "each", value=each, unit="ms", x=count)
