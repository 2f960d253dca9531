"""A graph as text: its steps, and then each of its plans as plans are explained."""

from __future__ import annotations

import flour
from oven import Plan
from oven.explain import explain
from runtime.graph.cutting import draw
from runtime.graph.plan import GraphPlan


def explained(
    plan: Plan | GraphPlan, stage: str = "stages", form: str = "text", data: object = None
) -> str:
    """A plan, or a graph of several, at one step of its way: see docs/reference/debugging.md."""
    if not isinstance(plan, GraphPlan):
        return explain(plan, stage, form, data)
    if stage in ("logical", "optimised") or form == "html":
        return flour.show(plan.flow, form)
    parts = [draw(plan.graph)]
    for number, each in plan.by_step.items():
        parts += [f"--- step {number}", explain(each, stage, form, data)]
    return "\n".join(parts)
