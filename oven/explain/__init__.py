"""Explains plans to people: stages, their code and times, and what scores are made of.

explain(plan, "stages")     the plan at any step from the program to machine code
attribute(plan, rows)       what each raw column adds to each row's score
counterfactual(plan, row)   the smallest change of a row that changes its answer
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oven.explain.attribution import attribute
    from oven.explain.counterfactuals import counterfactual
    from oven.explain.steps import explain

__all__ = ["attribute", "counterfactual", "explain"]


def __getattr__(name: str) -> object:
    if name == "attribute":
        from oven.explain.attribution import attribute

        return attribute
    if name == "counterfactual":
        from oven.explain.counterfactuals import counterfactual

        return counterfactual
    if name == "explain":
        from oven.explain.steps import explain

        return explain
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
