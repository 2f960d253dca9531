"""`pretzel warm`: compile ahead of time what a folder of models needs."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runtime.cli import common
from runtime.cli.errors import Exit
from runtime.cli.output import CommandOutput, TaskProgress

DESCRIPTION = """\
Compile the machine code that the models of a folder need, for this machine's processor or for
others, and write it to a folder as packs. A process whose PRETZEL_CACHE is that folder compiles
nothing for these models; the folder may be read-only. It can be copied to other machines and into
images of containers. Machines use packs of their own level of processor only: name all of them."""
EXAMPLES = """\
  pretzel warm models --into code
  pretzel warm models --cpu x86-64-v3,x86-64-v4,aarch64 --into code
  PRETZEL_CACHE=code pretzel serve models
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="a folder of models, or one model")
    parser.add_argument("--into", metavar="DIR", required=True, help="where the packs go")
    common.cpu(parser, "host", "levels of processors, with commas (host)")
    common.trust(parser)


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Compile for each level."""
    from oven.plans.ahead import level_names
    from runtime.warming import warm

    levels = level_names(options.cpu.split(","), "--cpu")
    with tempfile.TemporaryDirectory(prefix="pretzel-") as folder:
        plans = list(_plans(options, Path(folder)))
        with TaskProgress("warm", hidden=out.as_json) as progress:

            def told(level: str, done: int) -> None:
                progress.step(f"{level}: {done} of {len(plans)} plans compiled")

            made = warm(plans, levels, Path(options.into), told)
    facts = [{**each._asdict(), "path": str(each.path)} for each in made]
    lines = [
        f"{each.level}: {each.functions} functions, {each.size / 1e6:.1f} MB in {each.path}"
        for each in made
    ]
    out.result({"models": len(plans), "packs": facts}, "\n".join(lines))
    return Exit.OK


def _plans(options: argparse.Namespace, folder: Path) -> Iterator[Path]:
    """Every model of the folder as a plan's file; what is no plan yet is imported."""
    from runtime.cli.models import open_model
    from runtime.repository.files import Folder
    from runtime.repository.walk import scan

    whole = Path(options.folder)
    references = [str(whole)]
    if whole.is_dir():
        references = [f"{whole}/{one.name}@{one.version}" for one in scan(Folder(whole)).models]
    for number, reference in enumerate(references):
        path = folder / f"{number}.plan"
        opened = open_model(reference, trust_pickle=options.trust_pickle)
        opened.plan.save(path, durable=False)
        yield path
