"""`pretzel inspect`: a model's inputs, outputs and parameters."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from runtime.cli import common
from runtime.cli.compiling import tier_facts, tier_text
from runtime.cli.errors import Exit
from runtime.cli.output import CommandOutput, pairs

if TYPE_CHECKING:
    from runtime.cli.models import OpenedModel

DESCRIPTION = """\
Show a model's inputs and outputs, its stages, and how much memory its parameters take. A model that
is no plan yet is imported for it."""
EXAMPLES = """\
  pretzel inspect models/fraud
  pretzel inspect booster.ubj
  pretzel inspect models/fraud@3 --json
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common.model(parser)


def run(options: argparse.Namespace, out: CommandOutput) -> int:
    """Show the facts."""
    from oven.plans.background import NEVER
    from runtime.cli.models import open_asked

    facts = describe(open_asked(options, background=NEVER))
    out.result(facts, _text(facts))
    return Exit.OK


def describe(opened: OpenedModel) -> dict[str, Any]:
    """All facts about a model, as plain data."""
    from oven.plans.saved import code_levels
    from runtime.repository.files import shown
    from runtime.repository.formats import PLAN

    model, plan = opened.model, opened.plan
    parameters = plan.parameters()
    return {
        "name": model.name,
        "version": model.version,
        "file": shown(model.path),
        "format": model.form,
        "inputs": {name: str(kind) for name, kind in plan.inputs.items()},
        "outputs": {name: str(kind) for name, kind in plan.outputs.items()},
        "stages": [stage.kind for stage in plan.stages],
        "black_stages": sum(not stage.native for stage in plan.stages),
        "exact": plan.exact,
        **tier_facts(plan),
        "code": [*code_levels(model.path)] if model.form == PLAN else [],
        "parameters": len(parameters),
        "parameter_bytes": sum(item.nbytes for item in parameters),
        "digest": plan.digest,
    }


def _text(facts: dict[str, Any]) -> str:
    shown = {
        **facts,
        "inputs": "\n".join(f"{name}: {kind}" for name, kind in facts["inputs"].items()),
        "outputs": "\n".join(f"{name}: {kind}" for name, kind in facts["outputs"].items()),
        "stages": ", ".join(facts["stages"]) or "none",
        "exact": "yes" if facts["exact"] else "no",
        "tier": tier_text(facts["tier"], facts["compile_seconds"]),
        "code": ", ".join(facts["code"]) or "none in the file",
    }
    del shown["compile_seconds"]
    return pairs({name.replace("_", " "): value for name, value in shown.items()})
