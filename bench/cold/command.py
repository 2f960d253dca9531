"""How long does a new user wait: an empty code cache, a new process?

    python -m bench cold [--no-pack] [--only PART,...] [--report]

A table of goals by itself. Each contestant is given a fitted model in a process that has imported
its libraries, and is timed to its first answer. Ours has an empty code cache, and the release's
packs of machine code; with `--no-pack` not those either, as for a model of a structure that they
have not got. Ends with 1 where a goal is missed; `--report` writes the table of
docs/contributing/performance.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from bench.cold import pythons, serving, sessions
from bench.cold.goals import Line, Told, at_most, table
from bench.cold.processes import Failed, best
from bench.cold.workloads import Workload, workloads
from bench.goal import Goal
from bench.machine import fingerprint
from bench.report import PERFORMANCE, markdown

QUESTION = "Milliseconds to the first answer of a new process with an empty cache"
PARTS = ("first", "sessions", "serve", "pythons")
FIRST, SECONDS, TEXT_SECONDS, NARROW = 50.0, 1.0, 3.0, 1.0
MARKS = ("<!-- cold: begin -->", "<!-- cold: end -->")
_PACKAGES = ("numpy", "llvmlite", "scikit-learn", "onnxruntime", "skl2onnx", "lightgbm")


def main(*, packs: bool = True, parts: tuple[str, ...] = PARTS, report: bool = False) -> int:
    """Measure and print the goals; 1 where one was missed."""
    lines = []
    for line in _measured(parts, packs=packs):
        print(line, flush=True)
        lines.append(line)
    goals = [line for line in lines if isinstance(line, Goal)]
    missed = sum(not goal.met for goal in goals)
    print(f"{len(goals)} goals, {missed} missed")
    if report:
        markdown.put(PERFORMANCE, f"{_machine()}\n\n{table(lines).markdown()}", *MARKS)
    return 1 if missed else 0


def _measured(parts: tuple[str, ...], *, packs: bool) -> Iterator[Line]:
    if "first" in parts:
        for workload in workloads():
            with tempfile.TemporaryDirectory() as folder:
                workload.write(Path(folder))
                yield from _first(workload, Path(folder), packs=packs)
    for module, part in ((sessions, "sessions"), (serving, "serve"), (pythons, "pythons")):
        if part in parts:
            yield from module.measured()


def _first(workload: Workload, folder: Path, *, packs: bool) -> Iterator[Line]:
    """The goals of the first answer of one model."""
    name = workload.name
    ours = best("pretzel", folder, "" if packs else "no pack")
    if "predicted" in ours:
        yield Told(f"{name}: first predict", f"{1e3 * ours['predicted']:.0f} ms")
    yield Told(f"{name}: functions compiled", f"{ours['compiled']:.0f}")
    yield at_most(f"{name}: first answer, ms", FIRST, 1e3 * ours["first"])
    yield Told(f"{name}: from the start of the process", f"{1e3 * ours['process']:.0f} ms")
    for who in _others(workload):
        try:
            run = best(who, folder)
        except Failed as problem:
            yield Told(f"{name}: {who}", f"not measured: {problem}")
            continue
        theirs, whole = run["first"], 1e3 * run["process"]
        said = f"{1e3 * theirs:.1f} ms; {whole:.0f} ms from the start of the process"
        yield Told(f"{name}: first answer of {who}", said)
        if who != "original":
            yield at_most(f"{name}: first answer, of {who}'s", 1.0, ours["first"] / theirs)
    most = TEXT_SECONDS if workload.is_text else SECONDS
    yield at_most(f"{name}: full speed, CPU s", most, ours["full"])
    if "narrow" in ours:
        yield at_most(f"{name}: first float32 request, ms", NARROW, 1e3 * ours["narrow"])


def _others(workload: Workload) -> Iterator[str]:
    if not isinstance(workload.model, bytes):
        yield "original"
    yield "onnxruntime"
    if workload.is_trees:
        yield "tl2cgen"


def _machine() -> str:
    """The machine, and the level of its processor."""
    from oven.compiler import levels, machine

    level = levels.best(machine.triple(), machine.features())
    about = {"machine": fingerprint(), "packages": {name: version(name) for name in _PACKAGES}}
    has = "no level that packs have" if level is None else f"{level.name} ({level.listed})"
    return f"{markdown.machine_of(about)} Processor: {machine.host().cpu}, {has}."
