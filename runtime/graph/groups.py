"""Values of a plan that are computed apart: some of very many sums, and heavy work.

A group is a plan of its own. What is computed from values of one group only belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from flour.core.node import Node
from flour.core.types import Pairs, Text, Tokens, Vector

CHOICES = frozenset({"Choose", "ChooseText", "Where"})
#: Sums over one sparse vector that a plan makes in one pass: with more than some seventy it would
#: store the vector, which costs more than making it again, and adds it up in another order.
MOST_HEADS = 56
#: From so many bytes of parameters on (some 200 us for a row that reads them all), operators that
#: do not need one another are plans apart, which executors may run side by side.
HEAVY_BYTES = 4 << 20
#: What is computed from values of several groups.
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
