"""What does each mechanism gain? Ours with one switched off at a time.

No code cache (stages are compiled in the process that loads them), no object store (every plan has
its own copies), no rewrite rules, no materialisation of common first parts, no native entries
(calls are handled by Python code), and no pooling: scratch memory is allocated for each call.
Native entries need pooled memory, so the last variant is to be compared with the one without
entries.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple

from bench.crew import Absent, Member
from bench.experiments.memory import MIB
from bench.histogram import Histogram
from bench.results import spread
from bench.session import Session
from bench.workload import Saved

QUESTION = "Ours with one mechanism switched off at a time"


#: Most pipelines per variant, as compiling takes long.
MOST = 24


class Variant(NamedTuple):
    """A name, the options of its process, and whether its code cache is empty."""

    name: str
    options: Mapping[str, Any] = {}
    cold: bool = False


VARIANTS = (
    Variant("as it is"),
    Variant("no code cache", cold=True),
    Variant("no object store", {"store": False}),
    Variant("no rules", {"rules": False}),
    Variant("no materialisation", {"results": 0}),
    Variant("no entries", {"entries": False}),
    Variant("no entries, no pooling", {"entries": False, "pools": False}),
)


def run(session: Session) -> None:
    """The two workloads of the paper, all variants side by side."""
    names = [spec.name for spec in session.plan.specs if spec.name in {"sa", "ac"}]
    for name in names:
        workload = session.workload(name)
        few = Saved(workload.folder, min(workload.count, MOST))
        with ExitStack() as stack:
            _race(session, few, stack, 1 / (len(names) - names.index(name)))


def _race(session: Session, workload: Saved, stack: ExitStack, share: float) -> None:
    plan = session.plan
    members: dict[str, Member] = {}
    for variant in VARIANTS:
        session.progress.step(f"ablations, {workload.name}: {variant.name}")
        if session.clock.late:
            session.absent(f"ablations, {workload.name}", variant.name, "no time was left")
            continue
        try:
            members[variant.name] = _loaded(session, workload, variant, stack)
        except Absent as problem:
            session.absent(workload.name, f"pretzel, {variant.name}", str(problem))
    rounds: dict[str, list[Histogram]] = {name: [] for name in members}
    for _ in session.rounds(share):
        for name, member in members.items():
            said = member.ask("hot", calls=plan.calls, warm=plan.warm, seconds=plan.turn)
            rounds[name].append(Histogram.of_json(said["times"]))
    for name, histograms in rounds.items():
        for metric, part in (("hot_p50", 0.5), ("hot_p99", 0.99)):
            values = spread([each.percentile(part) / 1e3 for each in histograms])
            session.record("ablations", workload.name, name, metric, unit="µs", **values)


def _loaded(session: Session, workload: Saved, variant: Variant, stack: ExitStack) -> Member:
    """A fresh process with everything loaded; records the time and memory of that."""
    folder, count = str(workload.folder), workload.count
    numbers = list(range(count))
    with Member("pretzel", options=variant.options) as before:
        before.ask("prepare", folder=folder, count=count)
        before.ask("load", folder=folder, numbers=numbers, count=count)
    variables = {}
    if variant.cold:
        variables["PRETZEL_CACHE"] = stack.enter_context(tempfile.TemporaryDirectory())
    member = Member("pretzel", options=variant.options, variables=variables)
    stack.enter_context(member)
    empty = member.ask("memory")
    said = member.ask("load", folder=folder, numbers=numbers, count=count)
    cold = Histogram(member.ask("first_calls", start=0)["times"])
    added = (member.ask("memory")["rss"] - empty["rss"]) / MIB
    where = ("ablations", workload.name, variant.name)
    session.record(*where, "load", value=said["seconds"], unit="s", x=count)
    session.record(*where, "cold_p99", value=cold.percentile(0.99) / 1e3, unit="µs")
    session.record(*where, "added", value=added, unit="MiB", x=count)
    return member
