"""The plans of graphs, for callers that answer blocks of rows where these are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from flour.language.flow import Flow
from flour.language.graph_file import TEXT
from oven import Plan
from runtime.errors import BadCall
from runtime.repository.files import Folder
from runtime.repository.repository import Repository
from runtime.repository.walk import scan
from runtime.runtime import Runtime
from runtime.service.version import ModelVersion


def graph_plan(source: Flow | Path) -> Plan:
    """The plan of a graph of plans, or of a graph's file in the folder of its models."""
    if isinstance(source, Path):
        version = in_folder(*_place(source.absolute()))
    else:
        runtime = Runtime()  # what it names is in another one, or in a folder
        runtime.register("graph", source, background=False)
        version = runtime.endpoints.find("graph")
    return answers_blocks(version.plan)


def _place(path: Path) -> tuple[Path, str]:
    """The folder of models that a graph's file is in, and the graph's address there."""
    is_version = path.parent.name[:1].isdigit()
    depths = ((2, 1) if is_version else (1, 2)) if path.name == TEXT else (0,)
    for root in (path.parents[depth] for depth in depths if depth < len(path.parents)):
        found = [each for each in scan(Folder(root)).models if each.path == path]
        if found:
            return root, found[0].address
    raise BadCall("this is no file of a graph in a folder of models", where=str(path))


def in_folder(
    root: Path, address: str, *, trust_pickle: bool = False, allow_python: Sequence[str] = ()
) -> ModelVersion:
    """A graph with the models of its folder."""
    runtime = Runtime(allow_python=allow_python)  # it stays open, for graphs that wait
    with Repository(root, runtime, trust_pickle=trust_pickle, allow_python=allow_python) as folder:
        events = [each for each in folder.load_all() if f"{each.name}@{each.version}" == address]
    version = runtime.endpoints.versions().get(address)
    if version is None or version.plan is None:
        raise BadCall(
            "this graph cannot be opened",
            where=f"{root}, {address}",
            found="; ".join(each.reason for each in events)[:600] or "its models are not there",
            hint="a graph and its models are in one folder: FOLDER/NAME",
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
