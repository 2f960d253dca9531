"""The rules, one file each: every file of this folder is a rule, called as the file is.

`oven/optimise/passes.py` has their order, docs/25-rules.md what they preserve. `explain` shows
where each applied, `PRETZEL_WITHOUT=name` leaves one out.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from oven.optimise.rule import Rule


def _found() -> dict[str, Rule]:
    modules = (import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__))
    return {module.RULE.name: module.RULE for module in modules}


RULES: dict[str, Rule] = _found()
