"""A rule: one named rewrite, and how far it preserves answers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from flour.core.node import Node
from flour.core.op import Op
from oven.optimise.pattern import Match, Pattern, ProgramFacts, match

_HOUSE = Path(__file__).parent.parent.parent


class Preserves(Enum):
    """The degree to which a rule preserves answers."""

    #: Every bit of every answer, NaN and infinities included.
    BITS = "bits"
    #: The function of real numbers. Finite answers change by rounding; NaN, infinities and overflow
    #: may differ where the rule's "Numerics" says so.
    REASSOCIATES = "reassociates"
    #: Neither; never used unless asked for.
    APPROXIMATES = "approximates"


BITS, REASSOCIATES, APPROXIMATES = Preserves


def always(_: Match) -> bool:
    """The default guard: always true."""
    return True


@dataclass(eq=False)  # compared by identity, which is quick
class Rule:
    """A rewrite: if `pattern` fits and `guard` is true, `build` replaces the root.

    `build` may return None to leave the program as it is.
    """

    pattern: Pattern
    build: Callable[[Match], Node | None]
    preserves: Preserves
    guard: Callable[[Match], bool] = always
    #: The name of the rule's file, unless given.
    name: str = ""
    #: The passes that it joins, last of their rules, where oven/optimise/passes.py does not place
    #: it before another one.
    passes: tuple[str, ...] = ()
    #: Where the program has none of these operators, `build` changes nothing: with those of the
    #: pattern they decide whether the rule is imported at all.
    beside: tuple[type[Op], ...] = (Op,)

    @property
    def needs(self) -> Iterator[tuple[str, ...]]:
        """Of each of these groups of operators, a program has to have one for the rule to apply."""
        for group in (*self.pattern.kinds(), self.beside):
            if Op not in group:
                yield tuple(kind.__name__ for kind in group)

    def __post_init__(self) -> None:
        if not self.name:
            self.name = self.build.__module__.rpartition(".")[2]

    @property
    def place(self) -> str:
        """File and line of its `build` function."""
        path = Path(inspect.getfile(self.build))
        shown = path.relative_to(_HOUSE) if path.is_relative_to(_HOUSE) else Path(path.name)
        return f"{shown.as_posix()}:{self.build.__code__.co_firstlineno}"

    @property
    def doc(self) -> str:
        """Why, unless, numerics: the docstring of the rule's file."""
        return inspect.getdoc(inspect.getmodule(self.build)) or ""

    def try_at(self, item: Node, facts: ProgramFacts) -> tuple[Match, Node] | None:
        """The match and the replacement, if the rule applies at this node and changes it.

        Ahead of a cut at fitted values, which data often is exactly on, every bit is kept.
        """
        if self.preserves is not BITS and item in facts.before_cuts:
            return None
        fitted = match(self.pattern, item, facts)
        if fitted is None or not self.guard(fitted):
            return None
        replacement = self.build(fitted)
        return None if replacement is None or replacement is item else (fitted, replacement)
