"""Trains and converts everything for a full run, so that its time is for measuring."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from bench.contestants import find
from bench.crew import Absent, Member
from bench.experiments.scale import COUNTS, WHO
from bench.session import Plan
from bench.workload import Spec, saved

_HOURS = 4 * 3600.0


def run(plan: Plan) -> None:
    """Prepare all models of all contestants, except those that exist already."""
    for spec, who in _wanted(plan):
        start = time.monotonic()
        said = _prepare_one(spec, who)
        took = time.monotonic() - start
        sys.stderr.write(f"{who}, {spec.count} of {spec.name}: {said}, {took:.0f} s\n")


def _wanted(plan: Plan) -> Iterator[tuple[Spec, str]]:
    for spec in plan.specs:
        for who in plan.contestants:
            if spec.name in find(who).workloads:
                yield spec, who
    if any(spec.name == "lin" for spec in plan.specs):
        for who in WHO:
            if who in plan.contestants:
                yield Spec("lin", COUNTS[-1], 1.0, plan.specs[0].seed), who


def _prepare_one(spec: Spec, who: str) -> str:
    """Prepare one workload for one contestant; returns a short outcome."""
    workload = saved(spec)
    folder, count = str(workload.folder), workload.count
    try:
        with Member(who) as member:
            said = member.ask("prepare", limit=_HOURS, folder=folder, count=count)
            if who == "pretzel":  # fills the code cache
                numbers = list(range(min(count, 250)))
                member.ask("load", limit=_HOURS, folder=folder, numbers=numbers, count=count)
    except Absent as problem:
        return f"absent, {problem}"
    return f"{len(said['refused'])} refused" if said["refused"] else "ready"
