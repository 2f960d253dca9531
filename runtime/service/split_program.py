"""Cut programs where they part: what several have in common, and what is left of each.

Nodes are named by their content, operator, parameters and inputs included, so two programs have a
node in common exactly where they compute the same value from the same input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from flour.core.node import Node, node, readers, rebuild
from flour.core.source import Source
from flour.core.types import Vector
from flour.language.flow import Flow

#: A vector of this many columns is passed on with its zeros.
SHORT = 4096


class Cut(NamedTuple):
    """A program in two parts; the second one reads what the first one leaves, and nothing else."""

    prefix: Flow
    suffix: Flow
    dense: bool
    """Whether the rest reads sparse vectors with their zeros, which is faster for short ones."""

    @property
    def key(self) -> str:
        """Programs with the same first part have the same key."""
        return f"{self.prefix.digest} {self.dense}"


def cut(flow: Flow, is_shared: Callable[[Node], bool]) -> Cut | None:
    """The program cut after all that it shares, or None where there is no such place."""
    roots = tuple(flow.outputs.values())
    shared = {item for item in flow.nodes() if not isinstance(item.op, Source) and is_shared(item)}
    reading = readers(roots)
    edge = [
        item
        for item in flow.nodes()
        if item in shared and (item in roots or any(r not in shared for r in reading[item]))
    ]
    if not edge:
        return None
    labels = {item: f"shared_{index}" for index, item in enumerate(edge)}
    dense = all(map(_is_short, edge))
    suffix = _rest(flow, labels, dense=dense)
    if suffix.types != flow.types:  # an output would be stored differently
        dense = False
        suffix = _rest(flow, labels, dense=False)
    if not suffix.inputs().keys() <= set(labels.values()):
        return None  # it would have to read the data again
    return Cut(Flow({labels[item]: item for item in edge}), suffix, dense)


def _is_short(item: Node) -> bool:
    return isinstance(item.type, Vector) and item.type.width <= SHORT


def _rest(flow: Flow, labels: Mapping[Node, str], *, dense: bool) -> Flow:
    """The program with inputs in the places of some nodes."""

    def change(old: Node, inputs: tuple[Node, ...]) -> Node:
        if old not in labels:
            return node(old.op, inputs)
        kind = old.type
        if dense and isinstance(kind, Vector):
            kind = kind.having(sparse=False)
        return node(Source(labels[old], kind), ())

    roots = rebuild(flow.outputs.values(), change)
    return Flow(dict(zip(flow.outputs, roots, strict=True)))
