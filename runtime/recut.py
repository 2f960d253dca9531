"""Cut programs where they part: what several have in common, and what is left of each.

Nodes are named by their content, operator, parameters and inputs included, so two programs have a
node in common exactly where they compute the same value from the same input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flour.flow import Flow
from flour.node import Node, node, readers, rebuild
from flour.ops.source import Source


@dataclass(frozen=True, slots=True)
class Cut:
    """A program in two parts; the second one reads what the first one leaves, and nothing else."""

    prefix: Flow
    suffix: Flow

    @property
    def key(self) -> str:
        """Programs with the same first part have the same key."""
        return self.prefix.digest


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
    labels = {item: f"shared_{place}" for place, item in enumerate(edge)}

    def change(old: Node, inputs: tuple[Node, ...]) -> Node:
        if old in labels:
            return node(Source(labels[old], old.type), ())
        return node(old.op, inputs)

    made = rebuild(roots, change)
    suffix = Flow(dict(zip(flow.outputs, made, strict=True)))
    if not suffix.inputs().keys() <= set(labels.values()):
        return None  # it would have to read the data again
    return Cut(Flow({labels[item]: item for item in edge}), suffix)


def digests(flow: Flow) -> list[str]:
    """What the values of a program are found by, its inputs left out."""
    return [item.digest for item in flow.nodes() if not isinstance(item.op, Source)]
