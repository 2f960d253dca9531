"""`pretzel warm`: compile ahead of time what a folder of models needs."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runtime.cli import common
from runtime.cli.errors import CommandError, Exit
from runtime.cli.output import Output

DESCRIPTION = """\
Compile the machine code that the models of a folder need, for this machine's processor or for
others, and write it to a folder as packs. A process whose PRETZEL_CACHE is that folder compiles
nothing for these models; the folder may be read-only. It can be copied to other machines and into
images of containers."""
EXAMPLES = """\
  pretzel warm models --into code
  pretzel warm models --cpu x86-64-v3,x86-64-v4,aarch64 --into code
  PRETZEL_CACHE=code pretzel serve models
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="a folder of models, or one model")
    parser.add_argument("--into", metavar="DIR", required=True, help="where the packs go")
    parser.add_argument("--cpu", default="host", help="levels of processors, with commas")
    common.trust(parser)


def run(options: argparse.Namespace, out: Output) -> int:
    """Compile for each level."""
    from runtime.warming import warm

    levels = _levels(options.cpu)
    with tempfile.TemporaryDirectory(prefix="pretzel-") as folder:
        plans = list(_plans(options, Path(folder)))
        made = warm(plans, levels, Path(options.into))
    facts = [{**each._asdict(), "path": str(each.path)} for each in made]
    lines = [
        f"{each.level}: {each.functions} functions, {each.size / 1e6:.1f} MB in {each.path}"
        for each in made
    ]
    out.result({"models": len(plans), "packs": facts}, "\n".join(lines))
    return Exit.OK


def _levels(asked: str) -> list[str]:
    from oven.compiler import levels, machine

    names = []
    for name in asked.split(","):
        if name == "host":
            level = levels.best(machine.triple(), machine.features())
        else:
            level = levels.named(name)
        if level is None:
            known = ", ".join(each.name for each in levels.LEVELS)
            raise CommandError(
                "there is no such level of processors",
                where="--cpu",
                found=name,
                hint=f"host, {known}",
            )
        names.append(level.name)
    return names


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
