"""The plans of graphs, for callers that answer blocks of rows where these are."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from flour.language.flow import Flow
from flour.language.graph_file import TEXT
from oven import Plan
from runtime.errors import BadCall
from runtime.repository.repository import Repository
from runtime.runtime import Runtime
from runtime.service.version import ModelVersion


def graph_plan(source: Flow | Path) -> Plan:
    """The plan of a graph of plans, or of a graph's file in the folder of its models."""
    if isinstance(source, Path):
        path = source.absolute()
        inside = path.name == TEXT
        name = path.parent.name if inside else path.stem.removesuffix(".graph")
        version = in_folder(path.parents[inside], name if "@" in name else f"{name}@1")
    else:
        runtime = Runtime()  # what it names is in another one, or in a folder
        runtime.register("graph", source, background=False)
        version = runtime.endpoints.find("graph")
    return answers_blocks(version.plan)


def in_folder(root: Path, address: str, *, trust_pickle: bool = False) -> ModelVersion:
    """A graph with the models of its folder."""
    runtime = Runtime()  # it stays open, as a graph may wait on its event loop
    with Repository(root, runtime, trust_pickle=trust_pickle) as folder:
        events = [each for each in folder.load_all() if f"{each.name}@{each.version}" == address]
    version = runtime.endpoints.versions().get(address)
    if version is None or version.plan is None:
        raise BadCall(
            "this graph cannot be opened",
            where=f"{root}, {address}",
            found="; ".join(each.reason for each in events)[:400] or "its models are not there",
            hint="a graph is opened with the folder of its models: FOLDER/NAME",
        )
    return version


def answers_blocks(plan: object) -> Plan:
    """The plan, ready, unless it waits: then its rows are requests."""
    if getattr(plan, "waits", False):
        raise BadCall(
            "a graph that waits does not answer blocks of rows here",
            found=repr(plan)[:120],
            hint="runtime.predict_batch(name, blocks), or pretzel predict FOLDER/NAME ROWS",
        )
    return cast("Plan", plan).wait()
