"""`pretzel explain`: a model at any step from its program to machine code."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from runtime.cli import common
from runtime.cli.errors import ArgumentError, Exit
from runtime.cli.output import CommandOutput

if TYPE_CHECKING:
    from runtime.cli.models import OpenedModel

DESCRIPTION = """\
Show a model at one step of its way: the program as it was written, after all rules, cut into
stages, as source, as LLVM IR, as assembly, or a timed run. As text, or as a page of HTML that needs
nothing from elsewhere.

With --rows, show what each column adds to the score of each row of a file instead; with --want, the
smallest change of each after which the model answers that."""
EXAMPLES = """\
  pretzel explain models/fraud
  pretzel explain models/fraud --stage timed
  pretzel explain models/fraud --stage optimised --html --output fraud.html
  pretzel explain models/fraud --rows rows.csv
  pretzel explain models/fraud --rows rows.csv --want no --within age=18:40 --within city=Oslo,Rome
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
    parser.add_argument("--want", metavar="ANSWER", help="a label, or LOW:HIGH for a number")
    free = "a column that may change (all); may be repeated"
    parser.add_argument("--free", metavar="COLUMN", action="append", help=free)
    within = "COLUMN=LOW:HIGH, or COLUMN=VALUE,VALUE; may be repeated"
    parser.add_argument("--within", metavar="BOUNDS", action="append", default=[], help=within)
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
    if options.want is not None:
        made, text = _changes(opened, options)
        facts["changes"] = made
    elif options.rows:
        from oven.explain import attribute

        plan = opened.plan
        file = options.background
        background = first_rows(plan, options, file, 100) if file else None
        rows = first_rows(plan, options, options.rows, options.count)
        shares = attribute(plan, rows, output=options.of, background=background)
        shares = shares.hiding(opened.private)
        text = shares.to_html() if options.html else shares.to_text()
        facts |= shares.to_dict()
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


def _changes(opened: OpenedModel, options: argparse.Namespace) -> tuple[list[dict[str, Any]], str]:
    """The smallest change of each of some rows, as data and as text."""
    from oven.explain import counterfactual
    from runtime.bulk.refused import ROW_ERRORS, moved
    from runtime.cli.reading import first_rows
    from runtime.routing.blocks import taken

    if not options.rows:
        raise ArgumentError("rows to change are missing", hint="--rows rows.csv")
    plan = opened.plan
    want = options.want if "label" in plan.outputs else _bounds(options.want, "--want")
    within = {name: _bounds(of, name) for name, _, of in (e.partition("=") for e in options.within)}
    rows = first_rows(plan, options, options.rows, options.count)
    wanted = {"want": want, "free": options.free, "within": within}
    made, texts, problem = list[dict[str, Any]](), list[str](), None
    for i in range(plan.reader.read(rows).rows):
        try:
            found = counterfactual(plan, taken(rows, [i]), fixed=opened.private, **wanted)
        except ROW_ERRORS as refused:  # the others are answered
            problem = moved(refused, i)
            made.append({"error": problem.what, "where": problem.where, "found": problem.found})
            texts.append(f"row {i}: {' '.join(str(problem).split())}")
        else:
            made.append((hidden := found.hiding(opened.private)).to_dict())
            texts.append(str(hidden))
    if problem is not None and all("error" in each for each in made):
        raise problem
    return made, "\n".join(texts)


def _bounds(text: str, where: str) -> list[Any]:
    """The two numbers of LOW:HIGH, either of which may be left out, or the values of a list."""
    low, colon, high = text.partition(":")
    if not text:
        raise ArgumentError("a column has no bounds", where=where, hint="age=18:40, city=Oslo,Rome")
    if not colon:
        return text.split(",")
    try:
        return [float(each) if each else None for each in (low, high)]
    except ValueError:
        raise ArgumentError(
            "bounds are numbers", where=where, found=text[:80], hint="18:40"
        ) from None
