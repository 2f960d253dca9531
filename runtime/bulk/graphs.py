"""The plan of a graph, for callers that answer blocks of rows where these are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flour.language.flow import Flow
from flour.language.graph_file import TEXT
from flour.language.late import addresses
from oven import Plan
from runtime.errors import BadCall
from runtime.repository.repository import Repository
from runtime.service.runtime import Runtime


def graph_plan(source: Flow | Path) -> Plan:
    """The plan of a graph of plans, or of a graph's file in the folder of its models."""
    runtime, name, reasons = Runtime(), "graph", list[str]()
    if isinstance(source, Flow):
        if named := addresses(source):
            raise BadCall(
                "the models that a graph names are in a runtime, or in a folder",
                found=", ".join(named)[:200],
                hint='runtime.find("NAME").plan of a registered graph, or the path of its file',
            )
        runtime.register(name, source, background=False)
    else:
        path = source.absolute()
        inside = path.name == TEXT
        name = path.parent.name if inside else path.stem.removesuffix(".graph")
        with Repository(path.parents[inside], runtime) as folder:
            reasons = [each.reason for each in folder.load_all() if each.name == name]
    version = runtime.versions().get(name if "@" in name else f"{name}@1")
    if version is None or version.plan is None:
        raise BadCall(
            "this graph cannot be opened",
            where=str(source),
            found="; ".join(reasons)[:400],
            hint="its models are in the folder that it is in",
        )
    return answers_blocks(version.plan.wait())


def answers_blocks(plan: Any) -> Plan:
    """The plan, unless it waits: then its rows are requests."""
    if getattr(plan, "waits", False):
        raise BadCall(
            "a graph that waits does not answer blocks of rows here",
            found=repr(plan)[:120],
            hint="runtime.predict_batch(name, blocks), or pretzel predict FOLDER/NAME ROWS",
        )
    made: Plan = plan  # a GraphPlan has what is asked of a plan
    return made
