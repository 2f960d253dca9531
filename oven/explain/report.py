"""A report of a bake, shown and dumped as far as PRETZEL_DEBUG and PRETZEL_DUMP ask for it."""

from __future__ import annotations

import itertools
import os
import re
from contextlib import suppress
from pathlib import Path

from flour.core.errors import FlourError
from oven import debug
from oven.explain.steps import explain
from oven.optimise.rewrite import RewriteTrace
from oven.optimise.summary import listing
from oven.plans.plan import Plan

_plans = itertools.count(1)


def report(plan: Plan, trace: RewriteTrace | None) -> None:
    """Show and dump how a plan came to be; a loaded plan has no trace of its rewriting."""
    deepest = debug.level()
    with suppress(FlourError):  # what is shown says more; and two runs shall show the same
        plan.wait()
    for one in trace.passes if trace is not None else ():
        if one.sweeps:
            fired, time = len(one.firings), f"{one.seconds * 1e3:.2f} ms"
            rules = "rule" if fired == 1 else "rules"
            debug.say(2, f"pass {one.name}: {fired} {rules} fired in {time}")
        if deepest >= 3:
            debug.say(3, one.text())
    if trace is not None and deepest >= 3:
        debug.say(3, f"hits / tries, time of each rule\n{trace.table()}")
    for at, step in _CODE:
        if deepest >= at:
            debug.say(at, f"== {step}\n{explain(plan, step)}")
    target = os.environ.get("PRETZEL_DUMP")
    if target:
        # One file a step, in a directory of this plan; no times, so that runs can be compared.
        steps = [("logical", listing(plan.flow.outputs))]
        steps += [(one.name, one.text()) for one in (trace.passes if trace is not None else ())]
        steps += [(step, explain(plan, step)) for _, step in _CODE]
        folder = Path(target) / f"plan-{next(_plans):03}"
        folder.mkdir(parents=True, exist_ok=True)
        for place, (name, text) in enumerate(steps):
            safe = re.sub(r"[^A-Za-z0-9_]+", "-", name)
            (folder / f"{place:02}-{safe}.txt").write_text(text + "\n", encoding="utf-8")


_CODE = ((1, "stages"), (4, "source"), (5, "llvm"), (5, "asm"))
