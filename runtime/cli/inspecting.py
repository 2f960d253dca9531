"""`pretzel inspect`: a model's inputs, outputs and parameters."""

from __future__ import annotations

import argparse
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from flour.core.errors import FlourError, OtherVersionWarning
from runtime.cli import common
from runtime.cli.compiling import tier_facts, tier_text
from runtime.cli.errors import Exit
from runtime.cli.output import CommandOutput, pairs

if TYPE_CHECKING:
    from runtime.cli.models import OpenedModel
    from runtime.repository.files import Folder
    from runtime.repository.listing import FolderModel

DESCRIPTION = """\
Show a model's inputs and outputs, its stages, and how much memory its parameters take.

Of a model that is no plan yet, show the libraries and versions that wrote the file, its steps with
their parameters and sizes, and why it would be refused, if so. It is read as data: nothing of it is
run."""
EXAMPLES = """\
  pretzel inspect models/fraud
  pretzel inspect model.joblib
  pretzel inspect models/fraud@3 --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common.model(parser)


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Show the facts."""
    from oven.plans.background import NEVER
    from runtime.cli.models import find, open_asked
    from runtime.repository.files import shown

    folder, model = find(options.model)
    known = {"name": model.name, "version": model.version}
    facts: dict[str, Any] = known | {"file": shown(model.path), "format": model.form}
    refused, made = None, dict[str, Any]()
    try:
        with warnings.catch_warnings():  # the versions are among the facts
            warnings.simplefilter("ignore", OtherVersionWarning)
            made = describe(open_asked(options, background=NEVER))
    except FlourError as problem:
        refused = problem
    with suppress(FlourError):
        facts |= contents(folder, model)
    if refused is not None:
        if "steps" not in facts:
            raise refused
        parts = {name: getattr(refused, name) for name in ("what", "where", "found", "hint")}
        facts["refused"] = {name: each for name, each in parts.items() if each}
    facts |= made
    out.result(facts, _text(facts))
    return Exit.OK


def contents(folder: Folder, model: FolderModel) -> dict[str, Any]:
    """The facts that a file of another library tells without being imported."""
    from runtime.repository import formats
    from runtime.repository.files import shown

    if model.form in (formats.PLAN, formats.GRAPH):
        return {}
    raw = folder.read(model.path)
    found = formats.estimator(model.form, raw, shown(model.path), model.promise.part)
    steps = formats.contents(model.form, raw, found)
    return {"bytes": len(raw), "written_by": formats.written_by(model.form, raw), "steps": steps}


def step_text(step: dict[str, Any]) -> str:
    """A step in one line."""
    given = ", ".join(f"{name}={value}" for name, value in step["parameters"].items())
    kind = (
        f"{step['kind'].rpartition('.')[2]}({given if len(given) <= 100 else given[:97] + '...'})"
    )
    native = "" if step["native"] else f"; not native: {step['reason']}"
    return f"{step['step'] and step['step'] + ': '}{kind}, {step['bytes']:,} bytes{native}"


def describe(opened: OpenedModel) -> dict[str, Any]:
    """The facts about a model's plan, as plain data."""
    from oven.plans.saved import code_levels
    from runtime.repository.formats import PLAN

    model, plan = opened.model, opened.plan
    parameters = plan.program.parameters()
    return {
        "inputs": {name: str(kind) for name, kind in plan.inputs.items()},
        "outputs": {name: str(kind) for name, kind in plan.outputs.items()},
        "stages": [stage.kind for stage in plan.program.stages],
        "black_stages": sum(not stage.native for stage in plan.program.stages),
        "exact": plan.exact,
        **tier_facts(plan),
        "code": [*code_levels(model.path)] if model.form == PLAN else [],
        "parameters": len(parameters),
        "parameter_bytes": sum(item.nbytes for item in parameters),
        "digest": plan.digest,
    }


def _text(facts: dict[str, Any]) -> str:
    shown = {**facts}
    if "digest" in facts:  # it is a plan, or has become one
        shown |= {
            "inputs": "\n".join(f"{name}: {kind}" for name, kind in facts["inputs"].items()),
            "outputs": "\n".join(f"{name}: {kind}" for name, kind in facts["outputs"].items()),
            "stages": ", ".join(facts["stages"]) or "none",
            "exact": "yes" if facts["exact"] else "no",
            "tier": tier_text(facts["tier"], facts["compile_seconds"]),
            "code": ", ".join(facts["code"]) or "none in the file",
        }
        del shown["compile_seconds"]
    if "steps" in facts:
        shown["written_by"] = (
            "\n".join(f"{name} {each}" for name, each in facts["written_by"].items()) or "not told"
        )
        shown["steps"] = "\n".join(map(step_text, facts["steps"]))
    if "refused" in facts:
        shown["refused"] = "\n".join(facts["refused"].values())
    return pairs({name.replace("_", " "): value for name, value in shown.items()})
