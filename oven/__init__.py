"""Oven: a program becomes native code.

plan = oven.bake(flow)          rewrite, cut into stages, emit, compile
oven.link(written, optimised)   the plan of programs that were put together
plan.run(rows)                  {output name: array}
plan.save(path)                 data, never code
oven.load(path)                 checked on the way in
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flour.core.extension_points import declare
from flour.core.provenance import belongs_to_us
from oven.bake import bake, link, rewritten
from oven.plans.plan import Plan

if TYPE_CHECKING:
    from oven.plans.saved import load

__all__ = ["Plan", "bake", "link", "load", "rewritten"]


belongs_to_us(__file__)

#: What lower modules call although it stands above them: flour/core/extension_points.py says how.
declare("explain", "oven.explain.explain:explain")
declare("string_views", "oven.plans.string_views:fill")
declare("attribution", "oven.explain.attribution:attribute")
declare("bake_report", "oven.explain.report:report")


def __getattr__(name: str) -> object:
    if name == "load":
        from oven.plans.saved import load

        return load
    raise AttributeError(f"module 'oven' has no attribute {name!r}")
