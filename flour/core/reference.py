"""The living definition: an interpreter that runs a program with numpy, operator by operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from flour.core.errors import FlourError
from flour.core.node import Node, topological
from flour.core.op import Columns
from flour.core.provenance import Origin
from flour.core.source import Source
from flour.core.sparse import Sparse, densify
from flour.core.types import Type, Vector, Whole


def evaluate(
    roots: Iterable[Node],
    columns: Mapping[str, Columns],
    origins: Mapping[Node, tuple[Origin, ...]] | None = None,
) -> dict[Node, Columns]:
    """The value of every node the roots need, given the program's input columns."""
    values: dict[Node, Columns] = {}
    with np.errstate(all="ignore"):
        for item in topological(roots):
            if isinstance(item.op, Source):
                values[item] = columns[item.op.label]
            else:
                values[item] = _step(item, values, origins or {})
    return values


def _step(
    item: Node, values: Mapping[Node, Columns], origins: Mapping[Node, tuple[Origin, ...]]
) -> Columns:
    try:
        return apply_op(item, [values[source] for source in item.inputs])
    except FlourError as problem:
        problem.where = problem.where or " and ".join(map(str, origins.get(item, ())))
        raise


def apply_op(item: Node, inputs: list[Columns]) -> Columns:
    """One operator on columns that are already there, with the storage its type asks for."""
    if not item.op.takes_sparse:
        inputs = [densify(value) for value in inputs]
    value = item.op.reference(*inputs)
    if isinstance(item.type, Vector) and item.type.sparse and not isinstance(value, Sparse):
        return Sparse.of(value)
    return value


def public(value: Columns, kind: Type) -> Any:
    """Values as a caller sees them: arrays, and scipy's matrices if it is there."""
    if isinstance(kind, Whole):
        return value[0]
    if isinstance(value, Sparse) and isinstance(kind, Vector):
        try:
            return value.to_scipy()
        except ImportError:
            return value
    return value


def row_count(column: Columns) -> int:
    """The number of rows a column of any kind has."""
    return row_count(next(iter(column.values()))) if isinstance(column, dict) else len(column)
