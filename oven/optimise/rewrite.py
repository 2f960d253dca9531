"""The driver of all rewriting: order, fixed point, verification, trace and switches.

A pass applies its rules in sweeps until nothing changes. A sweep looks at every node, inputs
first, and collects the matches that do not overlap; then the program is rebuilt once with all of
them replaced. `PRETZEL_WITHOUT=name,...` leaves out rules or passes, `all` leaves out every rule.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from time import perf_counter
from typing import NamedTuple

from flour.core.errors import FlourError
from flour.core.node import Node, node, topological
from flour.core.op import Op
from flour.core.provenance import Origin
from flour.core.source import Source
from flour.core.types import Type
from flour.language.flow import Flow, with_origins
from objectstore import Strings, combine
from oven.errors import RewriteError
from oven.optimise.passes import PASSES, Pass, possible
from oven.optimise.pattern import BITS, REASSOCIATES, Match, Preserves, ProgramFacts, Rule
from oven.optimise.summary import expression, listing

Outputs = Mapping[str, Node]


def verify(before: Outputs, after: Outputs, who: str) -> None:
    """Raise RewriteError unless `after` can replace `before`.

    Outputs keep their names, order and types; inputs are a subset of the old ones; every new node
    comes after its inputs and has frozen parameters and the type its operator infers.
    """
    if list(before) != list(after):
        raise RewriteError(
            f"{who} changed the outputs", found=f"{', '.join(before)} became {', '.join(after)}"
        )
    for name, item in before.items():
        same_type(item, after[name], f"{who}, in output {name!r},")
    order = topological(after.values())
    old = set(topological(before.values()))
    allowed = {item.op.label: item.type for item in old if isinstance(item.op, Source)}
    index = {item: number for number, item in enumerate(order)}
    for item in order:
        if isinstance(item.op, Source) and allowed.get(item.op.label) != item.type:
            raise RewriteError(f"{who} made an input of its own", found=f"{item.op} {item.type}")
        if item not in old:
            _check_new(item, index, who)


def _check_new(item: Node, index: Mapping[Node, int], who: str) -> None:
    """Raise RewriteError unless a new node is what a node has to be."""
    for source in item.inputs:
        if index[source] >= index[item]:
            raise RewriteError(f"{who} made a circle", found=f"{source} and {item}")
    for parameter in item.op.parameters():  # frozen, so that they cannot change under a plan
        blobs = parameter.blobs() if isinstance(parameter, Strings) else (parameter,)
        if any(blob.array.flags.writeable for blob in blobs):
            raise RewriteError(f"{who} lost a parameter of {item.op.name}", found=repr(parameter))
    try:
        inferred: Type = item.op.infer(*(source.type for source in item.inputs))
    except FlourError as problem:
        raise RewriteError(f"{who} made a node that has no type", found=str(problem)) from problem
    if inferred != item.type:
        raise RewriteError(f"{who} changed a type", found=f"{item.type}, inferred {inferred}")


def same_type(before: Node, after: Node, who: str) -> None:
    """Raise RewriteError unless a replacement has the type of the node it replaces."""
    if before.type != after.type:
        raise RewriteError(
            f"{who} changed a type",
            found=f"{before.op.name}: {before.type} became {after.op.name}: {after.type}",
            hint="this is a bug in the rule; PRETZEL_WITHOUT can switch it off",
        )


#: No sane set of rules needs more sweeps over a program, or makes it this much larger.
MOST_SWEEPS = 200
MOST_GROWTH = 10


def optimise(flow: Flow, *, exact: bool) -> Flow:
    """The program after all rules that apply."""
    return _trace(flow, PASSES, exact=exact, tallies={}).flow


def trace(
    flow: Flow,
    exact: bool = False,  # noqa: FBT001, FBT002 (an option of every function about a bake)
    *,
    passes: Sequence[Pass] = PASSES,
) -> RewriteTrace:
    """The program after all rules that apply, with the trace of every pass."""
    # Every rule is listed, also those that are not tried.
    tallies = {one: {rule: RuleUse() for rule in one.rules} for one in passes}
    return _trace(flow, passes, exact=exact, tallies=tallies)


def _trace(
    flow: Flow, passes: Sequence[Pass], *, exact: bool, tallies: Mapping[Pass, dict[Rule, RuleUse]]
) -> RewriteTrace:
    without = switched_off(passes)
    allowed = (BITS,) if exact else (BITS, REASSOCIATES)
    outputs: Outputs = flow.outputs
    facts = ProgramFacts(tuple(outputs.values()))
    done: list[PassTrace] = []
    for one in passes:
        run = _PassRun(
            one, partial(_may_apply, one, without, allowed), outputs, tallies.get(one, {})
        )
        run.look_at(facts)
        pass_trace = run.to_rest()
        outputs, facts = pass_trace.after, run.facts
        done.append(pass_trace)
    firings = [firing for pass_trace in done for firing in pass_trace.firings]
    if not firings:
        return RewriteTrace(flow, tuple(done))
    origins = _origins(flow, outputs, [sweep for pass_trace in done for sweep in pass_trace.sweeps])
    return RewriteTrace(with_origins(outputs, origins), tuple(done))


def _may_apply(
    one: Pass, without: frozenset[str], allowed: Collection[Preserves], rule: Rule
) -> bool:
    """True if a rule of a pass is allowed to change answers so far, and was not switched off."""
    return rule.preserves in allowed and without.isdisjoint((rule.name, one.name, "all"))


def switched_off(passes: Sequence[Pass] = PASSES) -> frozenset[str]:
    """The names in PRETZEL_WITHOUT; an unknown name is an error."""
    names = {name.strip() for name in os.environ.get("PRETZEL_WITHOUT", "").split(",")} - {""}
    valid = {"all", *(name for one in passes for name in (one.name, *one.names))}
    if passes is PASSES and (unknown := sorted(names - valid)):
        raise RewriteError(
            f"PRETZEL_WITHOUT names no rule or pass: {', '.join(unknown)}",
            hint="known are " + ", ".join(sorted(valid)),
        )
    return frozenset(names)


# --- traces --------------------------------------------------------------------------------------


class Firing(NamedTuple):
    """One application of a rule at a node."""

    rule: Rule
    match: Match
    after: Node

    def text(self) -> str:
        """Rule, file and line, before and after."""
        before, after = (
            expression(item, self.match.holes) for item in (self.match.root, self.after)
        )
        return f"{self.rule.name}  ({self.rule.place})\n    {before}\n -> {after}"


class Sweep(NamedTuple):
    """The rules applied in one sweep, and for every node the node in its place afterwards."""

    firings: Sequence[Firing]
    moved: Mapping[Node, Node]


class RuleUse:
    """Tries and applications of a rule in a pass, and the time spent on it."""

    def __init__(self) -> None:
        self.tries = self.hits = 0
        self.seconds = 0.0


class PassTrace(NamedTuple):
    """One pass over one program."""

    name: str
    before: Outputs
    after: Outputs
    sweeps: tuple[Sweep, ...]
    tallies: Mapping[Rule, RuleUse]
    seconds: float

    @property
    def firings(self) -> tuple[Firing, ...]:
        """Every application of a rule, in order."""
        return tuple(firing for sweep in self.sweeps for firing in sweep.firings)

    def text(self) -> str:
        """The firings and the program after them, or "(unchanged)"."""
        head = f"== {self.name}"
        if not self.sweeps:
            return f"{head} (unchanged)"
        return "\n".join([head, *(firing.text() for firing in self.firings), listing(self.after)])


class RewriteTrace(NamedTuple):
    """The optimised program and every pass on the way to it."""

    flow: Flow
    passes: tuple[PassTrace, ...]

    @property
    def firings(self) -> tuple[Firing, ...]:
        """Every application of a rule, in order."""
        return tuple(firing for one in self.passes for firing in one.firings)

    @property
    def fired(self) -> set[str]:
        """The names of the rules that applied."""
        return {firing.rule.name for firing in self.firings}

    def text(self) -> str:
        """Every pass in order: its firings, and the program after it."""
        return "\n".join(one.text() for one in self.passes)

    def table(self) -> str:
        """hits / tries, time, file and line of every rule that was tried, the slowest first."""
        total: dict[Rule, RuleUse] = {}
        for one in self.passes:
            for rule, tally in one.tallies.items():
                into = total.setdefault(rule, RuleUse())
                into.tries += tally.tries
                into.hits += tally.hits
                into.seconds += tally.seconds
        rows = sorted(total.items(), key=lambda row: -row[1].seconds)
        return "\n".join(
            f"{t.hits:5} / {t.tries:<6} {t.seconds * 1e3:8.3f} ms  {rule.name}  {rule.place}"
            for rule, t in rows
        )


# --- one pass ------------------------------------------------------------------------------------


class _PassRun:
    """One pass being applied to one program."""

    def __init__(
        self,
        one: Pass,
        may_apply: Callable[[Rule], bool],
        outputs: Outputs,
        tallies: dict[Rule, RuleUse],
    ) -> None:
        self.name, self.before, self.outputs = one.name, outputs, outputs
        self._pass, self._may_apply, self.tallies = one, may_apply, tallies
        self._sweeps: list[Sweep] = []
        self._size = 0

    def look_at(self, facts: ProgramFacts) -> None:
        """Find the rules for the current program.

        Facts about it are handed from pass to pass until a pass changes it.
        """
        self.facts = facts
        self._size = self._size or len(facts.nodes)
        rules = tuple(filter(self._may_apply, possible(self._pass, facts.classes)))
        #: By the class of an operator: the rules whose pattern can start at it, in order.
        every = ((kind, _starting(rules, kind)) for kind in facts.classes)  # type: ignore[arg-type]  # classes are hashable
        self._starting = {kind: found for kind, found in every if found}

    def to_rest(self) -> PassTrace:
        """Sweep until no rule applies, then verify the resulting program."""
        started = perf_counter()
        seen: set[str] = set()
        while self._starting and (firings := self._sweep()):
            seen.add(_digest(self.outputs))
            was, self.outputs = self.outputs, self._rebuilt(firings)
            self.look_at(ProgramFacts(tuple(self.outputs.values())))
            self._check_progress(was, seen)
        if self._sweeps:
            verify(self.before, self.outputs, f"pass {self.name}")
        ends, seconds = (self.before, self.outputs), perf_counter() - started
        return PassTrace(self.name, *ends, tuple(self._sweeps), self.tallies, seconds)

    def _sweep(self) -> list[Firing]:
        """The firings of one sweep, at nodes that do not overlap."""
        facts = self.facts
        replaced: set[Node] = set()
        firings: list[Firing] = []
        for item in facts.nodes:
            rules = self._starting.get(type(item.op))
            firing = self._first(rules, item, facts) if rules else None
            # Matches may share nodes, but not a node that another match replaces.
            if firing is not None and replaced.isdisjoint(firing.match.inside):
                replaced.add(item)
                self.tallies[firing.rule].hits += 1
                firings.append(firing)
        return firings

    def _first(self, rules: Sequence[Rule], item: Node, facts: ProgramFacts) -> Firing | None:
        for rule in rules:
            tally = self.tallies.setdefault(rule, RuleUse())
            started = perf_counter()
            rewritten = rule.try_at(item, facts)
            tally.seconds += perf_counter() - started
            tally.tries += 1
            if rewritten is not None:
                if item.type != rewritten[1].type:
                    same_type(item, rewritten[1], f"rule {rule.name} ({rule.place})")
                return Firing(rule, *rewritten)
        return None

    def _rebuilt(self, firings: list[Firing]) -> Outputs:
        instead = {firing.match.root: firing.after for firing in firings}
        moved = substitute(self.outputs.values(), instead, self.name)
        self._sweeps.append(Sweep(firings, moved))
        return {name: moved[item] for name, item in self.outputs.items()}

    def _check_progress(self, was: Outputs, seen: set[str]) -> None:
        digest = _digest(self.outputs)
        limit = MOST_GROWTH * self._size + 100
        small = len(self.facts.nodes) <= limit
        if digest not in seen and len(self._sweeps) <= MOST_SWEEPS and small:
            return
        what = "has seen this program before" if digest in seen else "does not come to rest"
        names = {firing.rule.name for sweep in self._sweeps for firing in sweep.firings}
        rules = ", ".join(sorted(names))
        raise RewriteError(
            f"pass {self.name} {what}: {rules}",
            found=f"{listing(was)}\n  became\n{listing(self.outputs)}",
            hint="this is a bug in a rule; PRETZEL_WITHOUT can switch it off",
        )


@lru_cache(4096)
def _starting(rules: tuple[Rule, ...], kind: type[Op]) -> tuple[Rule, ...]:
    """Those of the rules whose pattern can start at an operator of this class."""
    return tuple(
        rule for rule in rules if not rule.pattern.roots or issubclass(kind, rule.pattern.roots)
    )


def _digest(outputs: Outputs) -> str:
    return combine(*(item.digest for item in outputs.values()))


def substitute(
    roots: Iterable[Node], instead: Mapping[Node, Node], who: str = "a rule"
) -> dict[Node, Node]:
    """Map every node the roots need to its node once the nodes in `instead` are replaced.

    A replacement may read nodes that are replaced themselves, but never the node it replaces.
    """
    done: dict[Node, Node] = {}
    waiting: set[Node] = set()
    stack = list(roots)
    while stack:
        item = stack[-1]
        if item in done:
            stack.pop()
            continue
        needed = (instead[item],) if item in instead else item.inputs
        missing = [source for source in needed if source not in done]
        if not missing:
            done[item] = _moved(item, instead, done)
            continue
        if item in waiting:
            raise RewriteError(f"{who} replaced {item.op.name} by something that reads it")
        waiting.add(item)
        stack += missing
    return done


def _moved(item: Node, instead: Mapping[Node, Node], done: Mapping[Node, Node]) -> Node:
    if item in instead:
        return done[instead[item]]
    inputs = tuple(done[source] for source in item.inputs)
    return item if inputs == item.inputs else node(item.op, inputs)


# --- provenance -----------------------------------------------------------------------------------


def _origins(
    flow: Flow, outputs: Outputs, sweeps: Iterable[Sweep]
) -> dict[Node, tuple[Origin, ...]]:
    """The origins of every node of the optimised program.

    Nodes that a rule makes have the origins of the nodes that it matched.
    """
    origins = {item: dict.fromkeys(places) for item, places in flow.origins().items()}
    for firings, moved in sweeps:
        for firing in firings:
            inherited = [origin for item in firing.match.inside for origin in origins.get(item, ())]
            seen = set(firing.match.facts.nodes)
            stack = [firing.after]
            while stack:
                item = stack.pop()
                if item not in seen:
                    seen.add(item)
                    origins.setdefault(item, {}).update(dict.fromkeys(inherited))
                    stack += item.inputs
        for old, new in moved.items():
            if old is not new and old in origins and old.op == new.op:
                origins.setdefault(new, {}).update(origins[old])
    kept = topological(outputs.values())
    return {item: tuple(sorted(origins[item])) for item in kept if item in origins}
