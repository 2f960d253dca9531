"""The benchmarks' command line: python -m bench quick | all | EXPERIMENT | report | compare A B."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import environments, experiments, results, survey
from bench.contestants import NAMES, find
from bench.contestants.pretzel import SOURCES, sources
from bench.machine import cores
from bench.progress import Progress
from bench.session import Plan, Session, about
from bench.workload import Spec

#: Contestants of the short run: they need nothing but the checkout's own environment.
QUICK = ("pretzel", "sklearn", "onnxruntime", "lightgbm", "handwritten_c")
QUICK_SPECS = (
    Spec("sa", 16, 0.01),
    Spec("ac", 16, 0.05),
    Spec("tab", 6, 0.1),
    Spec("lin", 16, 0.1),
    Spec("gbt", 6, 0.1),
)
SIZES = {"sa": 250, "ac": 250, "tab": 50, "lin": 100, "gbt": 50}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit status."""
    asked = parser().parse_args(arguments)
    if asked.command == "environments":
        environments.make(asked.names or environments.ENVIRONMENTS)
    elif asked.command == "compare":
        from bench.report.compare import compared

        print(compared(results.read(asked.before), results.read(asked.after)))
    elif asked.command == "report":
        _report([Path(each) for each in asked.files] or [_latest()], readme=asked.readme)
    else:
        _measure(asked)
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    for name in ("quick", "all", *experiments.EVERY):
        _options(commands.add_parser(name, help=_help(name)))
    ours = commands.add_parser("environments", help="make the environments contestants need")
    ours.add_argument("names", nargs="*", choices=[*environments.ENVIRONMENTS, []])
    report = commands.add_parser("report", help="write the report of a run, or of several")
    report.add_argument("files", nargs="*")
    report.add_argument("--readme", action="store_true", help="put the table into README.md too")
    compare = commands.add_parser("compare", help="two runs, figure by figure")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    return made


def _help(name: str) -> str:
    if name == "quick":
        return "five workloads, the nearest peers, about two minutes"
    if name == "all":
        return "every experiment with every contestant, hours"
    return str(experiments.find(name).QUESTION)


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--contestants", help="names, with commas")
    command.add_argument("--workloads", help="names, with commas")
    command.add_argument("--scale", type=float, help="size of models, 0.01 to 1.0")
    command.add_argument("--count", type=int, help="pipelines of each workload")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--rounds", type=int)
    command.add_argument("--calls", type=int)
    command.add_argument("--seconds", type=float)
    command.add_argument("--out", type=Path, help="the file of results")
    command.add_argument("--no-report", action="store_true")


def plan_of(asked: argparse.Namespace) -> Plan:
    """What the options make of a run."""
    quick = asked.command == "quick"
    scale = asked.scale or 0.02
    specs = QUICK_SPECS if quick else tuple(Spec(name, n, scale) for name, n in SIZES.items())
    wanted = asked.workloads.split(",") if asked.workloads else [each.name for each in specs]
    specs = tuple(
        Spec(each.name, asked.count or each.count, asked.scale or each.scale, asked.seed)
        for each in specs
        if each.name in wanted
    )
    contestants = tuple(asked.contestants.split(",")) if asked.contestants else NAMES
    if quick:
        contestants = contestants if asked.contestants else QUICK
        made = Plan(specs, contestants, 2, 20, 5, 0.15, (1, 100, 1000), (1,), (1, 8, 16))
    else:
        made = Plan(specs, contestants, callers=tuple(sorted({1, cores()})))
    given = {
        name: getattr(asked, name)
        for name in ("rounds", "calls", "seconds")
        if getattr(asked, name) is not None
    }
    return replace(made, **given)


def _measure(asked: argparse.Namespace) -> None:
    plan = plan_of(asked)
    names = {"quick": experiments.PHASES, "all": experiments.EVERY}.get(
        asked.command, (asked.command,)
    )
    sizes = len(plan.batches) * len(plan.callers)
    steps = survey.steps(_members(plan), plan.rounds, sizes, names)
    path = asked.out or results.new_path(asked.command)
    os.environ.setdefault(SOURCES, sources())
    run = results.Run(path, about(asked.command, plan))
    progress, start = Progress(steps), time.monotonic()
    try:
        survey.run(Session(plan, run, progress), names)
    finally:
        progress.end()
        run.close()
    print(f"measured in {time.monotonic() - start:.0f} s: {path}")
    if not asked.no_report:
        _report([path], readme=False)


def _members(plan: Plan) -> int:
    """In how many crews contestants are, all together."""
    kinds = [find(name) for name in plan.contestants]
    return sum(spec.name in kind.workloads for spec in plan.specs for kind in kinds)


def _latest() -> Path:
    found = results.latest()
    if found is None:
        raise SystemExit("there are no results yet: python -m bench quick")
    return found


def _report(paths: list[Path], *, readme: bool) -> None:
    from bench.report import write

    for made in write(paths, readme=readme):
        print(f"written: {made}")


if __name__ == "__main__":
    sys.exit(main())
