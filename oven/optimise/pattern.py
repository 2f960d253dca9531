"""Patterns over nodes, built by calling operator classes on holes.

    x = hole("x")
    op(Linear)(op(Concat)(rest("parts")))     a Linear over a Concat of anything
    op(Linear)(chain(Subtract, Divide)(x))    a Linear over one or more such steps over anything

A pattern binds nodes to names: `m["concat"]` is the node (an operator's name is its class in small
letters unless `name=` says otherwise), `m.op("linear", Linear)` its operator,
`m.many("steps")` the nodes of a `chain` (the last applied first) or of a `rest`. `m.facts`
describes the program around the match: the readers of a node, and the outputs.

A rule is one named rewrite of what a pattern matches, and how far it preserves answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from flour.core.node import Node, topological
from flour.core.op import Op

_O = TypeVar("_O", bound=Op)


class ProgramFacts:
    """Facts about the program around a match, for rules."""

    def __init__(self, roots: Sequence[Node]) -> None:
        self.outputs = frozenset(roots)
        self.nodes = topological(roots)

    @cached_property
    def place(self) -> Mapping[Node, int]:
        """The index of each node in an order in which nodes can run."""
        return {item: index for index, item in enumerate(self.nodes)}

    @cached_property
    def classes(self) -> frozenset[type[Op]]:
        """The classes of the operators in the program."""
        return frozenset(type(item.op) for item in self.nodes)

    @cached_property
    def _readers(self) -> Mapping[Node, list[Node]]:
        readers: dict[Node, list[Node]] = {item: [] for item in self.nodes}
        for item in self.nodes:
            for source in item.inputs:
                readers[source].append(item)
        return readers

    @cached_property
    def before_cuts(self) -> Collection[Node]:
        """The nodes that an operator which cuts at fitted values reads, directly or not."""
        found: set[Node] = set()
        for item in reversed(self.nodes):
            if item in found or item.op.cuts_behind(*(each.op for each in item.inputs)):
                found.update(item.inputs)
        return found

    def readers(self, item: Node) -> Sequence[Node]:
        """The nodes that read this one, once per reading."""
        return self._readers.get(item, ())

    def is_output(self, item: Node) -> bool:
        """True if the caller sees this node."""
        return item in self.outputs

    def sole_reader(self, item: Node) -> Node | None:
        """The only reader of this node; None if there are several, or if it is an output."""
        readers = self._readers.get(item, ())
        return readers[0] if len(readers) == 1 and item not in self.outputs else None

    def only_for(self, item: Node, reader: Node) -> bool:
        """True if nothing but `reader` needs it."""
        return self.sole_reader(item) is reader

    def only_for_any(self, item: Node, reader: Node, *kinds: type[Op]) -> bool:
        """True if nothing but `reader` and operators of these kinds needs it."""
        return not self.is_output(item) and all(
            other is reader or isinstance(other.op, kinds) for other in self.readers(item)
        )


# Plain classes, not dataclasses: making one of those takes longer than reading this file.


class Match:
    """A pattern that fitted: the nodes by name, and the program around them."""

    def __init__(self, root: Node, facts: ProgramFacts) -> None:
        self.root, self.facts = root, facts
        self.nodes: dict[str, Node] = {}
        self.lists: dict[str, tuple[Node, ...]] = {}
        #: The nodes that the replacement stands for, the root first: those whose operators the
        #: pattern named, and those a rule says it has looked through with `take`.
        self.inside: list[Node] = []

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def many(self, name: str) -> tuple[Node, ...]:
        """The nodes of a chain or a rest."""
        return self.lists[name]

    def op(self, name: str, kind: type[_O]) -> _O:
        """The operator of a node; the pattern has checked its class."""
        operator = self.nodes[name].op
        assert isinstance(operator, kind), f"{name} is a {operator.name}"
        return operator

    def ops(self, name: str) -> tuple[Op, ...]:
        """The operators of a chain, the last applied first."""
        return tuple(item.op for item in self.lists[name])

    def take(self, *items: Node) -> None:
        """Add nodes to the match: the replacement does their work too."""
        self.inside.extend(items)

    @property
    def holes(self) -> tuple[Node, ...]:
        """The nodes outside the match that matched nodes read."""
        inside = set(self.inside)
        sources = (source for item in self.inside for source in item.inputs)
        return tuple(dict.fromkeys(source for source in sources if source not in inside))

    def alone(self) -> bool:
        """True if nothing else needs any node of the match below its root."""
        inside = set(self.inside)
        return all(
            not self.facts.is_output(item)
            and all(reader in inside for reader in self.facts.readers(item))
            for item in self.inside[1:]
        )


class Pattern:
    """Something a node can fit."""

    #: The classes of the root's operator, or none if any will do.
    roots: tuple[type[Op], ...]

    def fits(self, item: Node, match: Match) -> bool:
        """True if the node fits; binds names in the match on the way."""
        raise NotImplementedError

    def kinds(self) -> Iterator[tuple[type[Op], ...]]:
        """The groups of classes of which a program has one each, if the pattern fits anywhere."""
        if self.roots:
            yield self.roots


class Hole(Pattern):
    """Any node."""

    roots = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def fits(self, item: Node, match: Match) -> bool:
        """Any node fits; a name that occurs twice must mean the same node."""
        return match.nodes.setdefault(self.name, item) is item


class Rest(NamedTuple):
    """All the inputs of a node from here on."""

    name: str


class Applied(Pattern):
    """An operator of one of some classes, over inputs that fit."""

    def __init__(
        self, roots: tuple[type[Op], ...], name: str, inputs: tuple[Pattern | Rest, ...]
    ) -> None:
        self.roots, self.name, self.inputs = roots, name, inputs

    def kinds(self) -> Iterator[tuple[type[Op], ...]]:
        """Its own, and those of its inputs."""
        yield self.roots
        for pattern in self.inputs:
            if isinstance(pattern, Pattern):
                yield from pattern.kinds()

    def fits(self, item: Node, match: Match) -> bool:
        """Operator first, then the inputs from left to right."""
        if not isinstance(item.op, self.roots):
            return False
        if match.nodes.setdefault(self.name, item) is not item:
            return False
        match.inside.append(item)
        for index, pattern in enumerate(self.inputs):
            if isinstance(pattern, Rest):
                match.lists[pattern.name] = item.inputs[index:]
                return True
            if index >= len(item.inputs) or not pattern.fits(item.inputs[index], match):
                return False
        return len(self.inputs) == len(item.inputs)


class Chained(Pattern):
    """One or more operators of some classes, each the only input of the next: as many as fit."""

    def __init__(self, roots: tuple[type[Op], ...], name: str, inner: Pattern) -> None:
        self.roots, self.name, self.inner = roots, name, inner

    def kinds(self) -> Iterator[tuple[type[Op], ...]]:
        """Its own, and those of what is below it."""
        yield self.roots
        yield from self.inner.kinds()

    def fits(self, item: Node, match: Match) -> bool:
        """Walk down as far as the classes go."""
        steps: list[Node] = []
        while isinstance(item.op, self.roots) and len(item.inputs) == 1:
            steps.append(item)
            item = item.inputs[0]
        match.lists[self.name] = tuple(steps)
        match.inside.extend(steps)
        return bool(steps) and self.inner.fits(item, match)


hole, rest = Hole, Rest


def op(*classes: type[Op], name: str = "") -> Callable[..., Applied]:
    """An operator of one of these classes; call it on the patterns of its inputs."""
    called = name or classes[0].name.lower()
    return lambda *inputs: Applied(classes, called, inputs)


def chain(*classes: type[Op], name: str = "steps") -> Callable[[Pattern], Chained]:
    """One or more consecutive operators of these classes; call it on the pattern below them."""
    return lambda inner: Chained(classes, name, inner)


def match(pattern: Pattern, item: Node, facts: ProgramFacts) -> Match | None:
    """The match of the pattern at this node, or None."""
    candidate = Match(item, facts)
    return candidate if pattern.fits(item, candidate) else None


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
