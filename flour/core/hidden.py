"""Columns whose values are not to be seen, and the nodes of a program that depend on columns.

Parameters of such nodes are values, too: categories, words and means tell what the rows of the
training held. Inside `with hiding(columns)`, programs are shown without them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from flour.core.node import Node
from flour.core.source import Source
from flour.core.types import Record

_hidden: ContextVar[Collection[str]] = ContextVar("columns that are hidden", default=())


@contextmanager
def hiding(columns: Collection[str]) -> Iterator[None]:
    """Show programs without the values of parameters that come from these columns."""
    token = _hidden.set(columns)
    try:
        yield
    finally:
        _hidden.reset(token)


def computed_from_hidden(nodes: Iterable[Node]) -> set[Node]:
    """The nodes that depend on columns which are hidden now."""
    hidden = frozenset(_hidden.get())
    return {item for item in nodes if hidden and hidden & read_columns(item)}


def read_columns(node: Node) -> frozenset[str]:
    """The columns and inputs that a node depends on; all of a record that is read as a whole."""
    found: set[str] = set()
    seen, left = {node}, [node]
    while left:
        item = left.pop()
        kind = item.type
        if isinstance(item.op, Source):
            found.add(item.op.label)
        if isinstance(kind, Record) and item is node:
            found.update(map(str, kind.names))
        for before in item.inputs:
            if isinstance(before.type, Record) and item.op.name != "Narrow":  # its readers pick
                label = getattr(item.op, "label", None)
                labels = getattr(item.op, "labels", None) if label is None else (label,)
                found.update(map(str, before.type.names if labels is None else labels))
            if before not in seen:
                seen.add(before)
                left.append(before)
    return frozenset(found)
