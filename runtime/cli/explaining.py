"""`pretzel explain`: a model at any step from its program to machine code."""

from __future__ import annotations

import argparse

from runtime.cli import common
from runtime.cli.errors import Exit
from runtime.cli.output import Output

DESCRIPTION = """\
Show a model at one step of its way: the program as it was written, after all rules, cut into
stages, as source, as LLVM IR, as assembly, or a timed run. As text, or as a page of HTML that needs
nothing from elsewhere."""
EXAMPLES = """\
  pretzel explain models/fraud
  pretzel explain models/fraud --stage timed
  pretzel explain models/fraud --stage optimised --html --output fraud.html
"""
STAGES = ("logical", "optimised", "stages", "source", "llvm", "asm", "timed")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common.model(parser)
    parser.add_argument("--stage", choices=STAGES, default="stages", help="what to show (stages)")
    parser.add_argument("--html", action="store_true", help="a page of HTML instead of text")
    parser.add_argument("--output", metavar="FILE", help="write to this file")


def run(options: argparse.Namespace, out: Output) -> int:
    """Explain the model."""
    from pathlib import Path

    from runtime.cli.models import open_model

    opened = open_model(options.model, trust_pickle=options.trust_pickle)
    text = opened.plan.explain(options.stage, "html" if options.html else "text")
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
        out.note(f"wrote {options.output}")
    else:
        out.result({"model": opened.model.name, "stage": options.stage, "text": text}, text)
    return Exit.OK
