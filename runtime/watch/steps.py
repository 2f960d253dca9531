"""Values of steps inside a plan, as columns: what drift of a step is measured on.

What rows take to compute, as a watch finds out in the background: by block, and by stage.
What the machine took for all rows is `pretzel_compute_seconds_total`, and its energy beside it;
this says how they divide.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import thread_time
from typing import Any

import numpy as np

import oven
from flour.core.errors import ParameterError, nearest
from flour.core.hidden import read_columns
from flour.core.node import Node
from flour.core.types import Vector
from flour.language.flow import Flow
from oven import Plan
from oven.explain.steps import label
from oven.explain.timing import staged
from runtime.service.version import ModelVersion
from runtime.watch.rows import Table

#: Columns of a step that are looked at.
_MOST = 1000


def step_node(flow: Flow, step: object) -> Node:
    """The last node of a step, by its path inside the imported model or the path's end.

    A path is "columntransformer.standardscaler"; that of a graph begins with the model's address.
    """
    wanted = step.removesuffix(".output") if isinstance(step, str) else ""
    if not wanted:
        raise ParameterError("this names no step", found=repr(step)[:80], hint='"standardscaler"')
    steps: dict[str, Node] = {}
    origins = flow.origins()
    for item in flow.nodes():
        steps |= {origin.step: item for origin in origins.get(item, ()) if origin.step}
    found = [name for name in steps if name == wanted or name.endswith("." + wanted)]
    if not found:
        raise ParameterError(
            f"this program has no step {wanted!r}",
            found="steps: " + ", ".join(steps)[:300],
            hint=nearest(wanted, steps),
        )
    if wanted not in found and len(found) > 1:
        raise ParameterError(
            f"{len(found)} steps are called {wanted!r}",
            found=", ".join(found)[:300],
            hint=f"more of the path, such as {found[0]!r}",
        )
    return steps[wanted if wanted in found else found[0]]


def step_plan(version: ModelVersion, steps: Sequence[str]) -> Plan:
    """A plan of this version's program with these steps as its outputs."""
    plan = version.plan
    if plan is None:
        raise ParameterError("this plan was dropped for memory", where=version.owner)
    nodes = {step: step_node(plan.flow, step) for step in steps}
    for step, node in nodes.items():
        if hidden := version.private & read_columns(node):
            raise ParameterError(
                "this step reads private columns, so its values are not to be seen",
                where=step,
                found=", ".join(sorted(hidden)),
                hint="name a step that does not depend on them",
            )
    return oven.bake(Flow(nodes), exact=True, background=True)


class Steps:
    """The values of some steps of a version by column: "standardscaler[0]" and so on."""

    def __init__(self, version: ModelVersion, names: Sequence[str]) -> None:
        self._plan = step_plan(version, names)
        for name, kind in self._plan.outputs.items():
            if isinstance(kind, Vector) and kind.width > _MOST:
                raise ParameterError(
                    f"drift is measured on steps of up to {_MOST:,} columns",
                    where=name,
                    found=f"{kind.width:,}",
                    hint="name a step behind it, or a plan's output",
                )

    def table(self, block: object) -> Table:
        """The columns of the steps for these rows."""
        found: Table = {}
        for name, values in self._plan.run(block).items():
            whole = np.asarray(values.toarray() if hasattr(values, "toarray") else values)
            if whole.ndim == 1:
                found[name] = whole
            else:
                parts = whole.reshape(len(whole), -1).T
                found |= {f"{name}[{place}]": part for place, part in enumerate(parts)}
        return found


#: One block in so many runs stage by stage, which takes longer.
_STAGED = 16


class StageCosts:
    """Times the blocks of a plan."""

    def __init__(self) -> None:
        self._blocks = 0
        self._seconds: dict[str, float] = {}

    def run(self, plan: Plan, block: object) -> tuple[dict[str, Any], float]:
        """The answers to a block, and the seconds of processor time that they took."""
        if self._blocks % _STAGED == 0:
            for number, each in enumerate(staged(plan, block)[2]):
                name = label(number, each.stage)
                self._seconds[name] = self._seconds.get(name, 0.0) + each.ended - each.began
        self._blocks += 1
        start = thread_time()
        answers = plan.run(block)
        return answers, thread_time() - start

    @property
    def shares(self) -> dict[str, float]:
        """The part of each stage in what rows take to compute."""
        seconds = self._seconds.copy()
        total = sum(seconds.values())
        return {name: each / total for name, each in seconds.items()} if total else {}
