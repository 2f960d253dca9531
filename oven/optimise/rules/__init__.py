"""The rules, one file each: every file of this folder is a rule, called as the file is.

`oven/optimise/passes.py` has their order, docs/contributing/rules.md what they preserve. `explain`
shows where each applied, `PRETZEL_WITHOUT=name` leaves one out. A rule is imported when a program
has the operators that it needs, or when it is looked up here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pkgutil import iter_modules

from flour.core.modules import imported
from oven.optimise.pattern import Rule


class _Rules(Mapping[str, Rule]):
    """Every rule by its name, imported when it is first looked up."""

    def __init__(self) -> None:
        self._names = tuple(each.name for each in iter_modules(__path__))

    def __getitem__(self, name: str) -> Rule:
        if name not in self._names:
            raise KeyError(name)
        return _imported(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def _imported(name: str) -> Rule:
    rule: Rule = imported(f"{__name__}.{name}").RULE
    return rule


RULES: Mapping[str, Rule] = _Rules()
