"""`pretzel ls`: the models in a folder, without loading any."""

from __future__ import annotations

import argparse
from collections import deque
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from objectstore import Explained
from runtime.cli.compiling import tier_facts, tier_text
from runtime.cli.errors import Exit
from runtime.cli.output import CommandOutput, table

if TYPE_CHECKING:
    from runtime.repository.files import Folder
    from runtime.repository.listing import FolderModel

DESCRIPTION = """\
List the models of a folder: our own layout, MLServer's and Triton's. Plans are checked byte by
byte; boosters, ONNX, notes, routes and rows of verify.jsonl are read; --tiers asks which plans have
their machine code here, and how long that of the others will take. What looks like a model and
cannot be served is listed with the reason, and the exit code is 1. Nothing is executed: pickles,
and answers to rows, are checked by `serve --strict`."""
EXAMPLES = """\
  pretzel ls models
  pretzel ls models --tiers
  pretzel ls models --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="a folder of models")
    parser.add_argument(
        "--tiers", action="store_true", help="load every plan, and say what would answer"
    )


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """List the models."""
    from runtime.repository.files import Folder, shown
    from runtime.repository.route_files import FILE, unfollowed
    from runtime.repository.walk import scan

    folder = Folder(options.folder)
    listing = scan(folder)
    damaged = {one.address: why for one in listing.models if (why := _damage(folder, one))}
    models: list[dict[str, Any]] = [
        {
            "name": one.name,
            "version": one.version,
            "format": one.form,
            "layout": one.layout,
            "file": shown(one.path.relative_to(folder.root)),
            **(_tier(one) if options.tiers else {}),
        }
        for one in listing.models
        if one.address not in damaged
    ]
    troubles = [
        {"name": one.name, "version": one.version, "where": one.where, "reason": one.reason}
        for one in listing.troubles
    ] + [
        {"name": one.name, "version": one.version, "where": shown(one.path), "reason": reason}
        for one in listing.models
        if (reason := damaged.get(one.address))
    ]
    for name, group in groupby(listing.models, key=attrgetter("name")):
        if reason := unfollowed(folder, name, {one.version for one in group}):
            file = shown(folder.root / name / FILE)
            troubles.append({"name": name, "version": "", "where": file, "reason": reason})
    out.result({"models": models, "refused": troubles}, _text(models, troubles))
    return Exit.REFUSED if troubles else Exit.OK


def _damage(folder: Folder, model: FolderModel) -> str:
    """Why a model cannot be served, as far as its files tell; empty if there is nothing."""
    import oven
    from flour.core.errors import PythonRefused
    from flour.language.graph_file import load_graph
    from oven.plans.background import NEVER
    from runtime.repository import formats, sample
    from runtime.repository.files import shown
    from runtime.repository.listing import refusal_of
    from runtime.service.private import private_columns

    notes, inputs = model.notes, None
    try:
        formats.check_whole(folder, model.path, model.form)
        if model.form == formats.GRAPH:
            with suppress(PythonRefused):  # a server may be allowed what it names
                load_graph(model.path)
        elif model.form == formats.PLAN:
            inputs = oven.load(model.path, background=NEVER).inputs if "private" in notes else None
        elif model.form not in {formats.SKLEARN, formats.SKOPS}:  # a server may unpickle those
            where = shown(model.path)
            inputs = model.promise.program(model.form, folder.read(model.path), where).inputs()
        if inputs is not None:
            private_columns(notes, inputs, model.address)
        if model.rows is not None:
            raw = folder.read(model.rows, sample.MAX_BYTES)
            deque(sample.read_rows(raw, shown(model.rows)), 0)
    # Importers may stumble over anything, which a server tells as the reason, too.
    except Exception as problem:  # noqa: BLE001
        return refusal_of(model, problem)
    return ""


def _tier(model: FolderModel) -> dict[str, object]:
    """The tier that would answer for a plan; unknown for a model to be imported first."""
    import oven
    from oven.plans.background import NEVER
    from runtime.repository.formats import PLAN

    if model.form != PLAN:
        return {"tier": None, "compile_seconds": None}
    try:
        return tier_facts(oven.load(model.path, background=NEVER))
    except Explained as problem:
        return {"tier": problem.what, "compile_seconds": None}


def _text(models: list[dict[str, Any]], troubles: list[dict[str, Any]]) -> str:
    if not models and not troubles:
        return "no models"
    columns = [name for name in (models or [{}])[0] if name != "compile_seconds"]
    rows = [[_cell(one, name) for name in columns] for one in models]
    lines = [table(columns, rows)] if models else []
    for one in troubles:
        address = "@".join(part for part in (one["name"], one["version"]) if part)
        lines += [f"refused: {address}", f"  at     {one['where']}", f"  found  {one['reason']}"]
    return "\n".join(lines)


def _cell(model: dict[str, Any], name: str) -> str:
    value = model[name]
    if name != "tier" or not isinstance(value, int):
        return "" if value is None else str(value)
    return tier_text(value, model["compile_seconds"])
