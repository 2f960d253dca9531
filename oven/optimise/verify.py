"""What must hold after every pass, whatever the rules did."""

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
    """Raise RewriteError unless `after` can stand in for `before`.

    Outputs keep their names, order and types; inputs are a part of what they were; every new
    node has inputs ahead of it, real parameters, and the type its operator infers.
    """
    _outputs(before, after, who)
    order = topological(after.values())
    known = set(topological(before.values()))
    _inputs(known, order, who)
    place = {item: number for number, item in enumerate(order)}
    for item in order:
        if item not in known:
            _acyclic(item, place, who)
            _parameters(item, who)
            _type(item, who)


def same_type(before: Node, after: Node, who: str) -> None:
    """Raise RewriteError unless a replacement has the type of what it replaces."""
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


def _inputs(known: Iterable[Node], order: Iterable[Node], who: str) -> None:
    allowed = {item.op.label: item.type for item in known if isinstance(item.op, Source)}
    for item in order:
        if isinstance(item.op, Source) and allowed.get(item.op.label) != item.type:
            raise RewriteError(f"{who} made an input of its own", found=f"{item.op} {item.type}")


def _acyclic(item: Node, place: Mapping[Node, int], who: str) -> None:
    for source in item.inputs:
        if place[source] >= place[item]:
            raise RewriteError(f"{who} made a circle", found=f"{source} and {item}")


def _parameters(item: Node, who: str) -> None:
    """Parameters are frozen content: arrays and tables that nobody can change under a plan."""
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
