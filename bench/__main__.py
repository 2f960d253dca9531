"""The benchmarks' command line: python -m bench quick | all | EXPERIMENT | report | compare A B.

`python -m bench attribution`, `bulk`, `cluster`, `cold`, `engines`, `everywhere`, `export`,
`graphs`, `grpc`, `homes`, `loop`, `machines`, `overload`, `parity`, `placement`, `provenance`,
`experiments`, `streams`, `training`, `watch` and `zipf` are tables of goals by themselves.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import environments, experiments, overload, prepare, results, survey
from bench.clock import Clock
from bench.cold import command as cold
from bench.contestants import NAMES
from bench.contestants.pretzel import SOURCES, sources
from bench.crew import THREAD_VARIABLES
from bench.experiments import (
    attribution,
    bulk,
    cluster,
    engines,
    everywhere,
    exports,
    graphs,
    grpc,
    homes,
    loop,
    machines,
    parity,
    placement,
    provenance,
    streams,
    training,
    watch,
    watch_tables,
    zipf,
)
from bench.experiments import experiments as routes
from bench.goal import printed
from bench.machine import cores
from bench.session import Plan, Session, about, took, took_key
from bench.workload import Spec

#: Tables of goals without options.
GOALS = {
    "attribution": attribution,
    "bulk": bulk,
    "cluster": cluster,
    "engines": engines,
    "experiments": routes,
    "graphs": graphs,
    "export": exports,
    "grpc": grpc,
    "homes": homes,
    "machines": machines,
    "parity": parity,
    "placement": placement,
    "provenance": provenance,
    "streams": streams,
    "training": training,
    "watch": watch,
    "zipf": zipf,
}
#: Contestants of the short run: they need nothing but the checkout's own environment.
QUICK = ("pretzel", "sklearn", "onnxruntime", "lightgbm", "handwritten_c")
#: As small as is meaningful: below these scales dictionaries are cut and plans are overhead.
QUICK_SPECS = (
    Spec("lin", 16, 0.1),
    Spec("gbt", 6, 0.1),
    Spec("sa", 16, 0.03),
    Spec("ac", 24, 0.25),
    Spec("tab", 6, 0.1),
)
#: As many as in the paper. With these scales 250 models of every contestant fit into 24 GB
#: together.
ALL_SPECS = (
    Spec("sa", 250, 0.05),
    Spec("ac", 250, 1.0),
    Spec("lin", 100, 1.0),
    Spec("tab", 50, 0.1),
    Spec("gbt", 50, 0.1),
)
#: Default time budget of a run in minutes.
BUDGETS = {"quick": 2.5, "all": 28.0}


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute the command line; returns the exit status."""
    asked = parser().parse_args(arguments)
    # Installed packages have byte code: a checkout's modules must not be compiled in each process.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if asked.command == "environments":
        environments.make(asked.names or environments.ENVIRONMENTS)
    elif asked.command == "compare":
        from bench.compare import run_of
        from bench.report.compare import compared

        runs = [run_of(each, asked.options.split()) for each in (asked.before, asked.after)]
        print(compared(*map(results.read, runs)))
    elif asked.command in GOALS:
        return printed(GOALS[asked.command].measured())
    elif hasattr(asked, "folder"):
        return printed((loop if asked.command == "loop" else watch_tables).measured(asked.folder))
    elif asked.command == "everywhere":
        return printed(everywhere.measured(asked.parts))
    elif asked.command == "cold":
        parts = tuple(asked.only.split(",")) if asked.only else cold.PARTS
        return cold.main(packs=not asked.no_pack, parts=parts, report=asked.report)
    elif asked.command == "overload":
        return overload.run(asked.seconds)
    elif asked.command == "report":
        _report([Path(each) for each in asked.files] or [_latest()], docs=asked.docs)
    else:
        _measure(asked)
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True)
    for name in ("quick", "all", *experiments.EVERY, "prepare"):
        command = commands.add_parser(name, help=_help(name))
        command.add_argument("--contestants", help="names, with commas")
        command.add_argument("--workloads", help="names, with commas")
        command.add_argument("--scale", type=float, help="size of models, 0.01 to 1.0")
        command.add_argument("--count", type=int, help="pipelines of each workload")
        command.add_argument("--seed", type=int, default=0)
        command.add_argument("--budget", type=float, help="minutes it may take; more refine")
        command.add_argument("--resume", action="store_true", help="go on with the file of --out")
        command.add_argument("--rounds", type=int, help="as many at most")
        command.add_argument("--calls", type=int)
        command.add_argument("--seconds", type=float)
        command.add_argument("--out", type=Path, help="the file of results")
        command.add_argument("--no-report", action="store_true")
    for name, experiment in GOALS.items():
        commands.add_parser(name, help=experiment.QUESTION)
    whole = commands.add_parser("loop", help=loop.QUESTION)
    whole.add_argument("folder", nargs="?", type=Path, help="of CSV files, for examples/retraining")
    real = commands.add_parser("watch-tables", help=watch_tables.QUESTION)
    real.add_argument("folder", type=Path, help="of CSV files")
    lesser = commands.add_parser("everywhere", help=everywhere.QUESTION)
    lesser.add_argument("parts", nargs="*", choices=[*everywhere.PARTS, []])
    new = commands.add_parser("cold", help=cold.QUESTION)
    new.add_argument("--no-pack", action="store_true", help="without the release's machine code")
    new.add_argument("--only", help=f"parts, with commas: {', '.join(cold.PARTS)}")
    new.add_argument("--report", action="store_true", help="write it into the page of figures")
    ours = commands.add_parser("environments", help="make the environments contestants need")
    ours.add_argument("names", nargs="*", choices=[*environments.ENVIRONMENTS, []])
    twice = commands.add_parser("overload", help=overload.QUESTION)
    twice.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    report = commands.add_parser("report", help="write the report of a run, or of several")
    report.add_argument("files", nargs="*")
    report.add_argument("--docs", action="store_true", help="put the tables into docs too")
    compare = commands.add_parser("compare", help="two runs or two commits, figure by figure")
    compare.add_argument("--options", default="", help="for the runs of commits, in quotes")
    for name in ("before", "after"):
        compare.add_argument(name, help="a file of results, or a commit to run `quick` of")
    return root


def _help(name: str) -> str:
    if name == "quick":
        return "five workloads, the nearest peers, about two minutes"
    if name == "all":
        return "every experiment with every contestant, half an hour; longer refines"
    if name == "prepare":
        return "train and convert what `all` needs, so that it has all its time for measuring"
    return str(experiments.find(name).QUESTION)


def plan_of(asked: argparse.Namespace) -> Plan:
    """The plan of a run, from the options."""
    quick = asked.command == "quick"
    specs: tuple[Spec, ...] = QUICK_SPECS if quick else ALL_SPECS
    names = asked.workloads.split(",") if asked.workloads else [each.name for each in specs]
    specs = tuple(
        Spec(each.name, asked.count or each.count, asked.scale or each.scale, asked.seed)
        for each in specs
        if each.name in names
    )
    contestants = tuple(asked.contestants.split(",")) if asked.contestants else NAMES
    if quick:
        contestants = contestants if asked.contestants else QUICK
        plan = Plan(specs, contestants, 2, 20, 5, 1.0, 0.15, (1, 100, 1000), (1,), (1, 8, 16))
    else:
        plan = Plan(specs, contestants, callers=tuple(sorted({1, cores()})))
        if asked.budget:
            plan = replace(plan, rounds=1000)
    overrides = {
        name: getattr(asked, name)
        for name in ("rounds", "calls", "seconds")
        if getattr(asked, name) is not None
    }
    return replace(plan, **overrides)


def _measure(asked: argparse.Namespace) -> None:
    plan = plan_of(asked)
    os.environ.setdefault(SOURCES, sources())
    for variable in THREAD_VARIABLES:  # training libraries read them at import
        os.environ.setdefault(variable, "1")
    if asked.command == "prepare":
        prepare.run(plan)
        return
    names = {"quick": experiments.PHASES, "all": experiments.EVERY}.get(
        asked.command, (asked.command,)
    )
    path = asked.out or results.new_path(asked.command)
    run = results.Run(path, about(asked.command, plan), resume=asked.resume and path.exists())
    needs = took()
    expected = {
        part: needs.get(took_key(plan, part), guess)
        for part, guess in survey.parts(plan, names).items()
        if part not in run.done
    }
    minutes = asked.budget or BUDGETS.get(asked.command)
    session = Session(
        plan, run, Clock(expected, 60 * minutes if minutes else None, rounds=plan.rounds)
    )
    try:
        survey.run(session, names)
    finally:
        session.progress.end()
        run.close()
    print(f"measured in {session.clock.elapsed:.0f} s: {path}")
    if not asked.no_report:
        from bench.report.figures import Figures
        from bench.report.goals import goals

        if (found := goals(Figures(results.read([path])))).rows:
            print(found.markdown())
        _report([path], docs=False)


def _latest() -> Path:
    newest = results.latest()
    if newest is None:
        raise SystemExit("there are no results yet: python -m bench quick")
    return newest


def _report(paths: list[Path], *, docs: bool) -> None:
    from bench.report import write

    for path in write(paths, docs=docs):
        print(f"written: {path}")


if __name__ == "__main__":
    sys.exit(main())
