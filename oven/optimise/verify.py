"""Invariants of a program, checked after every pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
    _outputs(before, after, who)
    order = topological(after.values())
    old = set(topological(before.values()))
    _inputs(old, order, who)
    index = {item: number for number, item in enumerate(order)}
    for item in order:
        if item not in old:
            _acyclic(item, index, who)
            _parameters(item, who)
            _type(item, who)


def same_type(before: Node, after: Node, who: str) -> None:
    """Raise RewriteError unless a replacement has the type of the node it replaces."""
    if before.type != after.type:
        raise RewriteError(
            f"{who} changed a type",
            found=f"{before.op.name}: {before.type} became {after.op.name}: {after.type}",
            hint="this is a bug in the rule; PRETZEL_WITHOUT can switch it off",
        )


def _outputs(before: Outputs, after: Outputs, who: str) -> None:
    if list(before) != list(after):
        raise RewriteError(
            f"{who} changed the outputs", found=f"{', '.join(before)} became {', '.join(after)}"
        )
    for name, item in before.items():
        same_type(item, after[name], f"{who}, in output {name!r},")


def _inputs(old: Iterable[Node], order: Iterable[Node], who: str) -> None:
    allowed = {item.op.label: item.type for item in old if isinstance(item.op, Source)}
    for item in order:
        if isinstance(item.op, Source) and allowed.get(item.op.label) != item.type:
            raise RewriteError(f"{who} made an input of its own", found=f"{item.op} {item.type}")


def _acyclic(item: Node, index: Mapping[Node, int], who: str) -> None:
    for source in item.inputs:
        if index[source] >= index[item]:
            raise RewriteError(f"{who} made a circle", found=f"{source} and {item}")


def _parameters(item: Node, who: str) -> None:
    """Parameters are frozen: arrays and tables that cannot change under a plan."""
    for parameter in item.op.parameters():
        blobs = parameter.blobs() if isinstance(parameter, Strings) else (parameter,)
        if any(blob.array.flags.writeable for blob in blobs):
            raise RewriteError(f"{who} lost a parameter of {item.op.name}", found=repr(parameter))


def _type(item: Node, who: str) -> None:
    try:
        inferred: Type = item.op.infer(*(source.type for source in item.inputs))
    except FlourError as problem:
        raise RewriteError(f"{who} made a node that has no type", found=str(problem)) from problem
    if inferred != item.type:
        raise RewriteError(f"{who} changed a type", found=f"{item.type}, inferred {inferred}")
