"""Invariants of a program, checked after every pass."""

from __future__ import annotations

from collections.abc import Mapping

from flour.core.errors import FlourError
from flour.core.node import Node, topological
from flour.core.source import Source
from flour.core.types import Type
from objectstore import Strings
from oven.errors import RewriteError

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
