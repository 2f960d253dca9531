"""The debug ladder: what a bake did, as much of it as PRETZEL_DEBUG asks for.

    PRETZEL_DEBUG=1   stages, cache hits, compile time
    PRETZEL_DEBUG=2   passes that changed something, with time
    PRETZEL_DEBUG=3   each rule firing: before, after, file and line
    PRETZEL_DEBUG=4   emitted source
    PRETZEL_DEBUG=5   LLVM IR and assembly

A level shows all below it. PRETZEL_DUMP=directory writes every one of these as files, one directory
for each plan and one file for each step, numbered in order, so that two runs can be compared.
Everything goes through one entry, `say`, to standard error.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flour.core.errors import ParameterError

if TYPE_CHECKING:
    from oven.optimise.rewrite import RewriteTrace
    from oven.plans.plan import Plan

DEEPEST = 5
_lock = threading.Lock()
_plans = itertools.count(1)


def _to_stderr(text: str) -> None:
    with _lock:
        sys.stderr.write(text + "\n")


_sink: Callable[[str], None] = _to_stderr


def level() -> int:
    """How much to show: 0 is nothing."""
    asked = os.environ.get("PRETZEL_DEBUG", "0") or "0"
    if not asked.isdecimal():
        raise ParameterError(
            "PRETZEL_DEBUG is a level", found=repr(asked), hint=f"a number from 0 to {DEEPEST}"
        )
    return int(asked)


def say(at: int, text: str) -> None:
    """Show a text at this level and above."""
    if level() >= at:
        _sink(text)


@contextmanager
def captured() -> Iterator[list[str]]:
    """What is said meanwhile, instead of showing it."""
    global _sink  # noqa: PLW0603 (the one entry is a variable so that tests can stand behind it)
    said: list[str] = []
    before, _sink = _sink, said.append
    try:
        yield said
    finally:
        _sink = before


def asked() -> bool:
    """Whether anybody wants to know anything."""
    return level() > 0 or bool(os.environ.get("PRETZEL_DUMP"))


def report(plan: Plan, trace: RewriteTrace | None) -> None:
    """Show and dump how a plan came to be; a loaded plan has no trace of its rewriting."""
    deepest = level()
    if trace is not None and deepest >= 2:
        _say_passes(trace, deepest)
    for at, step in _CODE:
        if deepest >= at:
            say(at, f"== {step}\n{plan.explain(step)}")
    target = os.environ.get("PRETZEL_DUMP")
    if target:
        _dump(plan, trace, Path(target))


_CODE = ((1, "stages"), (4, "source"), (5, "llvm"), (5, "asm"))


def _say_passes(trace: RewriteTrace, deepest: int) -> None:
    for one in trace.passes:
        if one.changed:
            fired, time = len(one.firings), f"{one.seconds * 1e3:.2f} ms"
            say(2, f"pass {one.name}: {fired} {'rule' if fired == 1 else 'rules'} fired in {time}")
        if deepest >= 3:
            say(3, one.text())
    if deepest >= 3:
        say(3, f"hits / tries, time of each rule\n{trace.table()}")


def _dump(plan: Plan, trace: RewriteTrace | None, target: Path) -> None:
    """One file a step, in a directory of this plan; no times, so that runs can be compared."""
    from oven.optimise.summary import listing

    steps = [("logical", listing(plan.flow.outputs))]
    steps += [(one.name, one.text()) for one in (trace.passes if trace is not None else ())]
    steps += [(step, plan.explain(step)) for _, step in _CODE]
    folder = target / f"plan-{next(_plans):03}"
    folder.mkdir(parents=True, exist_ok=True)
    for place, (name, text) in enumerate(steps):
        safe = re.sub(r"[^A-Za-z0-9_]+", "-", name)
        (folder / f"{place:02}-{safe}.txt").write_text(text + "\n", encoding="utf-8")
