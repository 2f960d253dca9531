"""Cut a linked graph into steps: plans, choices whose branches run for some rows only, fetches.

A *path* says for which rows a value is wanted: () is all of them, ((choice, 1),) those for which
the choice takes its second branch. A node belongs to the longest path that all its readers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flour.core.node import Node, readers, topological
from flour.core.source import Source
from flour.core.types import Pairs, Text, Tokens, Vector
from flour.language.flow import Flow, with_origins
from runtime.graph.form import CallForm, program_of
from runtime.graph.threads import SLOW_SECONDS

# Values of a plan that are computed apart: some of very many sums, and heavy work.
#
# A group is a plan of its own. What is computed from values of one group only belongs to it.


CHOICES = frozenset({"Choose", "ChooseText", "Where"})
#: Sums over one sparse vector that a plan makes in one pass: with more than some seventy it would
#: store the vector, which costs more than making it again, and adds it up in another order.
MOST_HEADS = 56
#: From so many bytes of parameters on (some 200 us for a row that reads them all), operators that
#: do not need one another are plans apart, which executors may run side by side.
HEAVY_BYTES = 4 << 20
#: Nodes that are computed from values of several groups.
TOGETHER = -1


def is_made(item: Node) -> bool:
    """True if it is worked out again by every step that reads it.

    Documents, words and sparse vectors are: a sum over stored ones may differ in its last bit.
    """
    kind = item.type
    sparse = isinstance(kind, Vector) and kind.sparse
    return (sparse or isinstance(kind, Text | Tokens | Pairs)) and not _is_cut(item)


def _is_cut(item: Node) -> bool:
    return item.op.name in CHOICES or item.op.name == "Fetch"


def grouped(
    order: Sequence[Node], carried: AbstractSet[Node], reading: Mapping[Node, Sequence[Node]]
) -> tuple[dict[Node, int], set[Node]]:
    """The group of each node that is in one, and the nodes that groups compute for themselves."""
    heads = [i for i in order if i not in carried and any(map(is_made, i.inputs))]
    copied = _copied(order, heads, reading) if len(heads) > MOST_HEADS else set[Node]()
    own = [item for item in heads if item not in copied]
    seeds: dict[Node, int] = {}
    if len(own) > MOST_HEADS:
        seeds = {item: place // MOST_HEADS for place, item in enumerate(own)}
    last = len(seeds)
    seeds.update({item: last + place for place, item in enumerate(order) if _is_heavy(item)})
    made: dict[Node, int] = {}
    for item in order:
        before = {made[each] for each in item.inputs if each in made}
        if before:
            made[item] = before.pop() if len(before) == 1 and not _is_cut(item) else TOGETHER
        elif item in seeds and item not in carried:
            made[item] = seeds[item]
    return (made, copied) if len(set(made.values())) > 1 else ({}, set())


def _is_heavy(item: Node) -> bool:
    return sum(parameter.nbytes for parameter in item.op.parameters()) >= HEAVY_BYTES


def _copied(
    order: Sequence[Node], heads: Sequence[Node], reading: Mapping[Node, Sequence[Node]]
) -> set[Node]:
    """A value made of one sum, such as a length, and needed beside many others.

    To read it from another step would take every group apart.
    """
    first: dict[Node, Any] = {item: item for item in heads}
    for item in order:
        if item not in first:
            before = {first[each] for each in item.inputs if each in first}
            if before:
                first[item] = before.pop() if len(before) == 1 else None
    chains: dict[Node, list[Node]] = {}
    for item, head in first.items():
        if head is not None:
            chains.setdefault(head, []).append(item)
    copied = set[Node]()
    for head, chain in chains.items():
        beside = {each for item in chain for each in reading[item] if first.get(each) is not head}
        if len(beside) > MOST_HEADS and not any(map(_is_cut, beside)):
            copied.update(chain)
    return copied


#: A choice, and the number of its branch.
Guard = tuple[Node, int]
Path = tuple[Guard, ...]
#: A branch with fewer bytes of parameters costs less than going round it.
WORTH_BYTES = 2048
#: How much of a new measurement goes into a step's time.
_NEWEST = 0.1


@dataclass(eq=False)
class Step:
    """A part of a graph that runs at once: a plan, a choice, or a fetch."""

    number: int
    kind: str
    """"plan", "choice" or "fetch"."""
    path: Path
    nodes: tuple[Node, ...]
    reads: tuple[Node, ...]
    gives: tuple[Node, ...]
    after: tuple[int, ...] = ()
    program: Flow | None = None
    """The program of a plan; its outputs are called as `name_of` says."""
    form: CallForm | None = None
    """The form in which a plan is given what it reads."""
    calls: int = 0
    rows: int = 0
    spared: int = 0
    """Rows that went by a fetch."""
    alone: float = 0.0
    """Seconds that a row takes by itself."""
    each: float = 0.0
    """Seconds that a row of a block takes."""

    def took(self, seconds: float, rows: int | None = None) -> None:
        """Learn from a call with a block of so many rows, or with a row by itself."""
        if rows is None:
            self.alone += (seconds - self.alone) * (_NEWEST if self.alone else 1.0)
        elif rows:
            self.each += (seconds / rows - self.each) * (_NEWEST if self.each else 1.0)

    def is_slow(self, rows: int | None = None) -> bool:
        """True if so many rows are worth another thread."""
        return (self.alone if rows is None else self.each * rows) >= SLOW_SECONDS

    @property
    def op(self) -> Any:
        """The operator of a choice or a fetch."""
        return self.nodes[0].op

    @property
    def title(self) -> str:
        """The step in few words."""
        if self.kind == "fetch":
            return f"fetch {self.op.label}"
        names = dict.fromkeys(item.op.name for item in self.nodes)
        return f"{self.kind} of {', '.join(list(names)[:6])}"


@dataclass(frozen=True, eq=False)
class GraphCut:
    """The steps of a graph, each after those that it reads."""

    steps: tuple[Step, ...]
    paths: Mapping[Node, Path]
    #: The choice that stands in paths for all that choose alike.
    guards: Mapping[Node, Node]
    outputs: Mapping[str, Node]

    @property
    def waits(self) -> bool:
        """True if a request may have to wait."""
        return any(step.kind == "fetch" for step in self.steps)

    @cached_property
    def waves(self) -> tuple[tuple[Step, ...], ...]:
        """Steps that do not need one another, by how many come before them."""
        depth: dict[int, int] = {}
        for step in self.steps:
            depth[step.number] = 1 + max((depth[before] for before in step.after), default=-1)
        waves = range(1 + max(depth.values(), default=-1))
        return tuple(tuple(s for s in self.steps if depth[s.number] == wave) for wave in waves)

    def wanted(self, outputs: Iterable[str]) -> frozenset[int]:
        """The numbers of the steps that these outputs need."""
        made = {item: step for step in self.steps for item in step.gives}
        found: set[int] = set()
        stack = [made[self.outputs[name]] for name in outputs if self.outputs[name] in made]
        while stack:
            step = stack.pop()
            if step.number not in found:
                found.add(step.number)
                stack.extend(self.steps[number] for number in step.after)
        return frozenset(found)


def roots_of(item: Node) -> list[Node]:
    """The input that a value is, or is a column of."""
    if isinstance(item.op, Source):
        return [item]
    return roots_of(item.inputs[0]) if item.op.name in ("Field", "Pick", "Narrow") else []


def cut(flow: Flow) -> GraphCut:
    """The steps of a linked graph."""
    order = topological(flow.outputs.values())
    lazy = _lazy(order, flow)
    paths, guards = _paths(order, flow, lazy)
    reading = readers(flow.outputs.values())
    #: Worked out again by every step that reads it.
    carried = {item for item in order if roots_of(item) or is_made(item)}
    own, copied = grouped(order, carried, reading)
    carried |= copied
    keys = _keys(order, paths, lazy, own)
    wanted = {item for item in flow.outputs.values() if not roots_of(item)}
    groups: dict[Any, list[Node]] = {}
    for item in order:
        if item in wanted or item not in carried:
            groups.setdefault(keys[item], []).append(item)
    return GraphCut(tuple(_steps(groups, paths, flow, carried)), paths, guards, flow.outputs)


# --- which rows want a value ---------------------------------------------------------------------


def _branches(item: Node) -> int:
    """The number of conditions a choice has; 0 for all other operators."""
    return len(item.inputs) // 2 if item.op.name in CHOICES else 0


def _paths(
    order: Sequence[Node], flow: Flow, lazy: AbstractSet[Node]
) -> tuple[dict[Node, Path], dict[Node, Node]]:
    """The path of each node, and the choice that stands for each lazy one there.

    Choices by the same conditions, such as those of the outputs of one model, take the same branch.
    Those that are not lazy want all their values for all rows.
    """
    wanted: dict[Node, list[Path]] = {item: [] for item in order}
    for item in flow.outputs.values():
        wanted[item].append(())
    paths: dict[Node, Path] = {}
    alike: dict[object, Node] = {}
    guards: dict[Node, Node] = {}
    for item in reversed(order):
        paths[item] = path = _common(wanted[item])
        conditions = _branches(item)
        if item in lazy:
            guards[item] = alike.setdefault((item.inputs[:conditions], path), item)
        for place, source in enumerate(item.inputs):
            guarded = item in lazy and place >= conditions
            wanted[source].append((*path, (guards[item], place - conditions)) if guarded else path)
    return paths, guards


def _common(paths: Sequence[Path]) -> Path:
    first = paths[0]
    length = 0
    while all(len(path) > length and path[length] == first[length] for path in paths):
        length += 1
    return first[:length]


def _lazy(order: Sequence[Node], flow: Flow) -> set[Node]:
    """The choices with a branch that is worth leaving out."""
    paths, guards = _paths(order, flow, {item for item in order if _branches(item)})
    behind = dict.fromkeys(guards, 0)
    for item, path in paths.items():
        if not roots_of(item):
            for choice, _ in path:
                behind[choice] += _weight(item)
    return {choice for choice, guard in guards.items() if behind[guard] >= WORTH_BYTES}


def _weight(item: Node) -> int:
    """About what a node costs; a node that may refuse a row is worth any cut."""
    op = item.op
    slow = op.name == "Fetch" or not (op.has_emit() or op.has_kernel())
    texts = any(isinstance(kind, Text | Tokens | Pairs) for kind in _types(item))
    if (slow and op.name not in ("TakeText", "Bundle", "ChooseText")) or texts or op.refuses_rows():
        return WORTH_BYTES
    return sum(parameter.nbytes for parameter in op.parameters())


def _types(item: Node) -> list[object]:
    return [item.type, *(source.type for source in item.inputs)]


# --- what runs together --------------------------------------------------------------------------


def _keys(
    order: Sequence[Node],
    paths: Mapping[Node, Path],
    lazy: AbstractSet[Node],
    group: Mapping[Node, int],
) -> dict[Node, Any]:
    """The step of each node: nodes with one key run together.

    Those of a plan have one path and group, wait for the same fetches, and lie behind as many
    borders.
    """
    waits: dict[Node, frozenset[Node]] = {}
    level: dict[Node, int] = {}
    keys: dict[Node, Any] = {}
    for item in order:
        waits[item] = frozenset[Node]().union(*(waits[source] for source in item.inputs))
        level[item] = 0
        for source in item.inputs:
            if not roots_of(source):
                apart = paths[source] != paths[item] or group.get(source) != group.get(item)
                border = source in lazy or apart
                level[item] = max(level[item], level[source] + border)
        alone = item in lazy or item.op.name == "Fetch"
        plan = (paths[item], waits[item], level[item], group.get(item, -1))
        keys[item] = item if alone else plan
        if item.op.name == "Fetch":
            waits[item] |= {item}
    return keys


def _steps(
    groups: Mapping[Any, list[Node]],
    paths: Mapping[Node, Path],
    flow: Flow,
    carried: AbstractSet[Node],
) -> list[Step]:
    reading = readers(flow.outputs.values())
    wanted = set(flow.outputs.values())
    drafts: list[Step] = []
    for key, inside in groups.items():
        kind = "plan" if isinstance(key, tuple) else "fetch" if key.op.name == "Fetch" else "choice"
        own = set(inside)
        reads = dict.fromkeys(
            each
            for item in inside
            for source in item.inputs
            for each in _borders(source, own, carried)
        )
        gives = [i for i in inside if i in wanted or any(r not in own for r in reading[i])]
        gives = [i for i in gives if i in wanted or i not in carried]
        drafts.append(Step(-1, kind, paths[inside[0]], tuple(inside), tuple(reads), tuple(gives)))
    steps, origins = _ordered(drafts), flow.origins()
    for step in steps:
        if step.kind == "plan":
            made, notes, step.form = program_of(step.reads, step.gives, origins)
            step.program = with_origins(made, notes)
    return steps


def _borders(item: Node, own: AbstractSet[Node], carried: AbstractSet[Node]) -> list[Node]:
    """Values that a step reads for this one: the value itself, or those it is worked out of."""
    if item in own:
        return []
    if item in carried and not isinstance(item.op, Source):
        return [each for source in item.inputs for each in _borders(source, own, carried)]
    return [item]


def _ordered(drafts: Sequence[Step]) -> list[Step]:
    """The steps with their numbers, each after those that it reads or that choose its rows."""
    made = {item: step for step in drafts for item in step.gives}
    before: dict[Step, set[Step]] = {}
    for step in drafts:
        needs = [*step.reads]
        for choice, _ in step.path:
            needs += choice.inputs[: _branches(choice)]
        before[step] = {made[item] for item in needs if item in made} - {step}
    done: list[Step] = []
    left = list(drafts)
    while left:
        step = next(each for each in left if before[each] <= set(done))
        left.remove(step)
        step.number = len(done)
        step.after = tuple(sorted(each.number for each in before[step]))
        done.append(step)
    return done


def draw(cut_: GraphCut) -> str:
    """The steps in lines of text."""
    lines = []
    for step in cut_.steps:
        rows = " > ".join(f"{choice.op.name} branch {branch}" for choice, branch in step.path)
        after = f" after {', '.join(map(str, step.after))}" if step.after else ""
        only = f", for rows of {rows}" if rows else ""
        lines.append(f"step {step.number}: {step.title}{after}{only}")
    return "\n".join(lines)
