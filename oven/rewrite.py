"""The one driver of all rewriting."""

from __future__ import annotations

from flour.flow import Flow


def optimise(flow: Flow, *, exact: bool) -> Flow:
    """The program after all rules that apply."""
    return flow
