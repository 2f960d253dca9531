"""`pretzel why`: where a kept answer comes from, and whether it is computed again bit for bit."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from runtime.cli.errors import CommandError, Exit
from runtime.cli.output import CommandOutput

DESCRIPTION = """\
Find an answer by its id in the folders that servers or runtimes keep answers in, tell where it
comes from, from the training on, and compute it again.

The folders may be in use. What was kept without rows, or without private columns, is told and not
computed again."""
EXAMPLES = """\
  pretzel why 5f1c9a0b3d2e-17 --answers /var/lib/pretzel
  pretzel why 5f1c9a0b3d2e-17 --answers answers --html > answer.html
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("id", metavar="ID", help="of the answer: the header X-Answer-Id")
    parser.add_argument(
        "--answers", metavar="DIR", required=True, help="a folder of answers, or one of such"
    )
    parser.add_argument("--html", action="store_true", help="print the way as HTML")


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Find the answer, and compute it again."""
    from runtime.provenance.why import find_answer

    folder = Path(options.answers)
    found = find_answer(folder, options.id)
    if found is None:
        raise CommandError(
            "no answer of this id is kept here",
            where=str(folder),
            found=options.id[:80],
            hint="it was deleted for its age or room, erased or damaged, or is in another folder",
        )
    agrees = found.agrees() if found.whole else None
    facts: dict[str, Any] = {
        "id": found.id,
        "endpoint": found.endpoint,
        "version": found.version,
        "when": found.when.isoformat(),
        "inputs": found.inputs,
        "answers": found.answers,
        "computed_again": agrees,
        "lineage": found.lineage().splitlines(),
    }
    told = json.loads(json.dumps(facts, default=_plain))
    said = {None: "not computed again: rows are missing", True: "computed again: the same bits"}
    shown = found.lineage("html") if options.html else found.lineage()
    out.result(told, f"{shown}\n{said.get(agrees, 'COMPUTED AGAIN, BITS DIFFER')}")
    return Exit.UNFAITHFUL if agrees is False else Exit.OK


def _plain(value: object) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
