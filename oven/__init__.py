"""Oven: a program becomes native code.

plan = oven.bake(flow)          rewrite, cut into stages, emit, compile
oven.link(written, optimised)   the plan of programs that were put together
plan.run(rows)                  {output name: array}
plan.save(path)                 data, never code
oven.load(path)                 checked on the way in
"""

from __future__ import annotations

import copyreg
from typing import TYPE_CHECKING

from flour.core.provenance import belongs_to_us
from flour.data import arrow_strings
from oven.bake import bake, link, rewritten
from oven.plans.plan import HasPlan, Plan, bakers, reporters

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from oven.optimise.rewrite import RewriteTrace
    from oven.plans.saved import load

__all__ = ["HasPlan", "Plan", "bake", "link", "load", "rewritten"]


belongs_to_us(__file__)


def _report(plan: Plan, trace: RewriteTrace | None) -> None:
    from oven.explain.report import report

    report(plan, trace)


def _string_views(
    cells: NDArray[np.int64], begins: Sequence[int], bases: NDArray[np.int64] | None
) -> bool:
    from oven.plans.string_views import fill

    return fill(cells, begins, bases)


def _as_file(plan: Plan) -> tuple[Callable[[bytes], Plan], tuple[bytes]]:
    """The function that reads a plan's file with all checks, and the file: for pickles."""
    from oven.plans import saved

    return saved.from_bytes, (saved.to_bytes(plan),)


bakers.append(bake)
copyreg.pickle(Plan, _as_file)
reporters.append(_report)
arrow_strings.fillers.append(_string_views)


def __getattr__(name: str) -> object:
    if name == "load":
        from oven.plans.saved import load

        return load
    raise AttributeError(f"module 'oven' has no attribute {name!r}")
