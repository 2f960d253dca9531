"""`pretzel ls`: the models in a folder, without loading any."""

from __future__ import annotations

import argparse
from typing import Any

from runtime.cli.errors import Exit
from runtime.cli.output import Output, table

DESCRIPTION = """\
List the models of a folder: our own layout, MLServer's and Triton's. Nothing is loaded. What looks
like a model and cannot be served is listed with the reason."""
EXAMPLES = """\
  pretzel ls models
  pretzel ls models --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="a folder of models")


def run(options: argparse.Namespace, out: Output) -> int:
    """List the models."""
    from runtime.repository.files import Folder, shown
    from runtime.repository.walk import scan

    folder = Folder(options.folder)
    listing = scan(folder)
    models = [
        {
            "name": one.name,
            "version": one.version,
            "format": one.form,
            "layout": one.layout,
            "file": shown(one.path.relative_to(folder.root)),
        }
        for one in listing.models
    ]
    troubles = [
        {"name": one.name, "version": one.version, "where": one.where, "reason": one.reason}
        for one in listing.troubles
    ]
    out.result({"models": models, "refused": troubles}, _text(models, troubles))
    return Exit.OK


def _text(models: list[dict[str, Any]], troubles: list[dict[str, Any]]) -> str:
    if not models and not troubles:
        return "no models"
    columns = ("name", "version", "format", "layout", "file")
    lines = [table(columns, [[one[name] for name in columns] for one in models])] if models else []
    for one in troubles:
        address = "@".join(part for part in (one["name"], one["version"]) if part)
        lines += [f"refused: {address}", f"  at     {one['where']}", f"  found  {one['reason']}"]
    return "\n".join(lines)
