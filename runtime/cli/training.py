"""`pretzel train`: train the candidates of a recipe side by side, and serve the best."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.cli import common
from runtime.cli.errors import ArgumentError, Exit
from runtime.cli.output import CommandOutput

if TYPE_CHECKING:
    from runtime.training.cache import TrainingCache

DESCRIPTION = """\
Run a recipe: a Python file whose functions are steps, candidates and a gate. Candidates are trained
side by side. The first that passes the gate is saved in the folder of models at once, then the
best, or the mean of two that is better; servers of the folder follow. Results are stored, so
another run computes only steps whose code, parameters or data have changed. They are Python
objects: recipe and cache are code that you trust.

The exit code is 1 where a step has failed or nothing passes the gate. Where a step has failed, a
served version that was better by this gate, for these data, stays."""
EXAMPLES = """\
  pretzel train recipe.py --into models
  pretzel train recipe.py --into models --set trees=300 --set forest.depth=8
  pretzel train recipe.py --into models --every 1d --cache-bytes 10G
"""
#: Waits between trainings.
PAUSE = time.sleep


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("recipe", metavar="RECIPE", help="a Python file")
    parser.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="another value for a parameter, or for STEP.NAME; may be repeated",
    )
    parser.add_argument("--into", metavar="DIR", help="the folder of models")
    parser.add_argument("--name", help="of the endpoint; by default the recipe's")
    parser.add_argument("--every", metavar="TIME", help="train again and again: 90 s, 12 h, 1 d")
    parser.add_argument(
        "--cache", metavar="DIR", help="for results (.pretzel-training beside the recipe)"
    )
    parser.add_argument(
        "--cache-bytes",
        metavar="SIZE",
        type=common.size,
        default=10 << 30,
        help="remove results used longest ago beyond this size, but for those of this run (10G)",
    )
    parser.add_argument(
        "--jobs", metavar="N", type=common.positive, help="processes side by side (one a core)"
    )
    parser.add_argument("--ray", action="store_true", help="train as tasks of Ray instead")


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Train once, or until the command is interrupted."""
    from runtime.rollout.terms import seconds_of
    from runtime.training.cache import TrainingCache

    every = seconds_of(options.every)
    if every is not None and not (isinstance(every, float) and every > 0):
        raise ArgumentError("--every takes a time", found=options.every, hint="90 s, 12 h, 1 d")
    folder = options.cache or Path(options.recipe).parent / ".pretzel-training"
    code = Exit.OK
    while True:
        with TrainingCache(folder) as cache:
            code = _train(options, cache, out)
            cache.collect(options.cache_bytes)
        if every is None:
            return code
        PAUSE(every)


def _train(options: argparse.Namespace, cache: TrainingCache, out: CommandOutput) -> Exit:
    from runtime.training.executors import RayTasks, WorkerProcesses
    from runtime.training.publisher import Publisher
    from runtime.training.recipe import Recipe
    from runtime.training.training import train

    if not all("=" in each for each in options.set):
        raise ArgumentError("--set takes NAME=VALUE", found=", ".join(options.set))
    recipe = Recipe.read(options.recipe, dict(each.split("=", 1) for each in options.set))
    publisher = Publisher(options.name or recipe.path.stem, options.into) if options.into else None
    with RayTasks() if options.ray else WorkerProcesses(options.jobs) as executor:
        ended = train(recipe, cache, publisher, executor, on_progress=out.note)
    told = " and ".join(ended.served) or "no candidate is served"
    failed = f"; failed: {', '.join(ended.failed)}" if ended.failed else ""
    told = f"{ended.address} {told}; {len(ended.ran)} steps computed{failed}"
    out.result(asdict(ended), told.strip())
    return Exit.OK if ended.served and not ended.failed else Exit.REFUSED
