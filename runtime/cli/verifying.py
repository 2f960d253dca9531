"""`pretzel verify`: compare a model to rows with answers, or to its original."""

from __future__ import annotations

import argparse
from typing import Any

from runtime.cli import common
from runtime.cli.errors import ArgumentError, Exit
from runtime.cli.output import CommandOutput

DESCRIPTION = """\
Load a model as a server would, and check what it answers: the rows that stand beside it
(verify.jsonl), or with --against the rows of a file, as the original answers them in its own
library."""
EXAMPLES = """\
  pretzel verify models/fraud
  pretzel verify models/fraud --against model.joblib --trust-pickle --rows rows.csv
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common.model(parser)
    parser.add_argument("--against", metavar="FILE", help="the original")
    parser.add_argument("--rows", metavar="ROWS", help="a file of rows for both")
    common.tolerance(parser)
    common.rows(parser)


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Verify the model."""
    from runtime.cli.models import open_asked

    if bool(options.against) != bool(options.rows):
        raise ArgumentError("--against needs --rows, and --rows needs --against")
    opened = open_asked(options)
    answers = opened.verified_rows()
    facts: dict[str, Any] = {"model": opened.model.name, "answers_beside": answers}
    text = f"{opened.model.name}: loads and answers"
    if answers:
        text += f"; {answers:,} answers that stand beside it are right"
    if options.against:
        from flour.sklearn.originals import original
        from runtime.cli import reading
        from runtime.cli.comparing import compare_file
        from runtime.cli.models import find
        from runtime.repository import formats

        folder, model = find(options.against)
        raw, trust, part = folder.read(model.path), options.trust_pickle, model.promise.part
        source = formats.original(model.form, raw, str(model.path), part, trust_pickle=trust)
        how = reading.options_of(options, options.rows)
        compared = compare_file(
            opened.plan, original(model.form, source), options.rows, how, options.tolerance
        )
        rows, outputs = compared.rows, compared.outputs
        facts |= {"rows": rows, "outputs": list(outputs)}
        text += f"; {rows:,} rows answer as the original does ({', '.join(outputs)})"
    out.result(facts, text)
    return Exit.OK
