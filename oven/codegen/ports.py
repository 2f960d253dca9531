"""Ports: a program's inputs as few blocks of memory, independent of column names.

A vector input is one block. The columns of a record that the program reads are laid side by side,
one block for each dtype, so that neither their names nor their number change the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flour.core.node import Node, topological
from flour.core.source import Source
from flour.core.types import Later, Pairs, Record, Text, Tokens, Type, Vector, Whole
from flour.ops.require import RequireFinite
from flour.ops.source import Field, Pick


@dataclass(frozen=True)
class Port:
    """One block of the plan's input: an input itself, or columns of a record of one dtype."""

    label: str
    type: Type
    fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class View:
    """The source of a node's value: a port, or some columns of it."""

    port: Port
    columns: tuple[int, ...] | None = None


def find_ports(roots: Sequence[Node]) -> dict[Node, View]:
    """The view of each input node and of each column picked from a record."""
    order = topological(roots)
    views = {
        item: View(Port(item.op.label, item.type))
        for item in order
        if isinstance(item.op, Source) and not isinstance(item.type, Record)
    }
    apart = (Record, Tokens, Pairs, Whole)
    picked = {
        item: (item.inputs[0].op.label, dtype_of(item.type))
        for item in order
        if isinstance(item.op, Field | Pick) and isinstance(item.inputs[0].op, Source)
        if not isinstance(item.type, apart)
    }
    blocks = _blocks(picked)
    for item, block in picked.items():
        port = blocks[block]
        columns = tuple(port.fields.index(name) for name in _names_of(item))
        whole = isinstance(item.op, Pick) and columns == tuple(range(len(port.fields)))
        views[item] = View(port, None if whole else columns)
    for item in order:
        # A check leaves its input as it is, so who reads it reads the port.
        if isinstance(item.op, RequireFinite) and item.inputs[0] in views:
            views[item] = views[item.inputs[0]]
    return views


def arrives(item: Node, views: Mapping[Node, View]) -> bool:
    """True if the node is there without computing anything."""
    return item in views and not isinstance(item.op, RequireFinite)


def _blocks(picked: Mapping[Node, tuple[str, str]]) -> dict[tuple[str, str], Port]:
    """The ports of columns, by the labels of their inputs and by dtype."""
    names: dict[tuple[str, str], dict[str, None]] = {}
    for item, block in picked.items():
        names.setdefault(block, {}).update(dict.fromkeys(_names_of(item)))
    return {
        (label, dtype): Port(label, Vector(len(block), dtype), tuple(block))
        for (label, dtype), block in names.items()
    }


def dtype_of(kind: Type) -> str:
    """The dtype of a column's values, "string" for documents; empty if it has several or none."""
    if isinstance(kind, Record | Tokens | Pairs | Whole | Later):
        return ""
    return "string" if isinstance(kind, Text) else kind.dtype


def _names_of(item: Node) -> tuple[str, ...]:
    return item.op.labels if isinstance(item.op, Pick) else (item.op.fields()["label"],)


def pack(port: Port, columns: Mapping[str, Any]) -> Any:
    """The block of memory of a port, from the program's coerced input columns."""
    column = columns[port.label]
    if port.fields:
        parts = [column[name] for name in port.fields]
        dtype = port.type.dtype  # type: ignore[union-attr]  # a port of fields is a vector
        if dtype == "string":
            return np.stack(parts, axis=1)
        block = np.empty((len(parts[0]), len(parts)), dtype)
        for j, part in enumerate(parts):
            block[:, j] = part
        return block
    return column
