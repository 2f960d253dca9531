"""`pretzel explain`: a model at any step from its program to machine code."""

from __future__ import annotations

import argparse
from typing import Any

from runtime.cli import common
from runtime.cli.errors import Exit
from runtime.cli.output import CommandOutput

DESCRIPTION = """\
Show a model at one step of its way: the program as it was written, after all rules, cut into
stages, as source, as LLVM IR, as assembly, or a timed run. As text, or as a page of HTML that needs
nothing from elsewhere.

With --rows, show what each column adds to the score of each row of a file instead."""
EXAMPLES = """\
  pretzel explain models/fraud
  pretzel explain models/fraud --stage timed
  pretzel explain models/fraud --stage optimised --html --output fraud.html
  pretzel explain models/fraud --rows rows.csv
"""
STAGES = ("logical", "optimised", "stages", "source", "llvm", "asm", "timed")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common.model(parser)
    parser.add_argument("--stage", choices=STAGES, default="stages", help="what to show (stages)")
    parser.add_argument("--html", action="store_true", help="a page of HTML instead of text")
    parser.add_argument("--output", metavar="FILE", help="write to this file")
    parser.add_argument("--rows", metavar="FILE", help="explain the scores of the first of these")
    parser.add_argument("--of", metavar="OUTPUT", help="the output to explain (scores)")
    parser.add_argument("--background", metavar="FILE", help="rows whose mean is compared with")
    parser.add_argument("--count", type=common.positive, default=5, help="rows to explain (5)")
    common.rows(parser)


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Explain the model."""
    from pathlib import Path

    from flour.core.hidden import hiding
    from runtime.cli.models import open_asked
    from runtime.cli.reading import first_rows
    from runtime.graph.explained import explained

    opened = open_asked(options)
    facts: dict[str, Any] = {"model": opened.model.name}
    if options.rows:
        from oven.explain import attribute

        plan = opened.plan
        file = options.background
        background = first_rows(plan, options, file, 100) if file else None
        rows = first_rows(plan, options, options.rows, options.count)
        made = attribute(plan, rows, output=options.of, background=background)
        made = made.hiding(opened.private)
        text = made.to_html() if options.html else made.to_text()
        facts |= made.to_dict()
    else:
        with hiding(opened.private):
            form = "html" if options.html else "text"
            text = explained(opened.plan, options.stage, form)
        facts |= {"stage": options.stage, "text": text}
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8")
        out.note(f"wrote {options.output}")
    else:
        out.result(facts, text)
    return Exit.OK
