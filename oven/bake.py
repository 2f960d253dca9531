"""From a program to a plan: validate, rewrite, cut into stages, emit, compile."""

from __future__ import annotations

from flour.flow import Flow
from oven.plan import Plan
from oven.rewrite import optimise


def bake(flow: Flow, *, exact: bool = False) -> Plan:
    """The plan of a program.

    With `exact`, only rewrites that keep every bit are made and sums keep their order.
    """
    return Plan(flow, optimise(flow, exact=exact), exact=exact)
