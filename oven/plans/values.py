"""Values of a program's nodes while a plan runs: computed one by one, handed to native code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flour.core.node import Node
from flour.core.op import Columns
from flour.core.reference import apply_op, evaluate
from flour.core.source import Source
from flour.core.sparse import Sparse
from flour.core.types import Vector
from flour.language.flow import Flow
from oven.codegen.ports import Port, pack
from oven.codegen.stages import Value


def by_definition(flow: Flow, columns: Columns) -> dict[str, Columns]:
    """Every output from the operators' definitions, which say which row is wrong."""
    known = evaluate(flow.outputs.values(), columns, flow.origins())
    return {name: known[item] for name, item in flow.outputs.items()}


def native_column(value: Value, values: Mapping[Value, Any], columns: Columns) -> Any:
    """A column for native code."""
    return pack(value, columns) if isinstance(value, Port) else values[value]


def interpret(item: Node, values: Mapping[Value, Any], columns: Columns) -> dict[Value, Any]:
    """The value of a node without native code, from its definition."""
    inputs = [_value(source, values, columns) for source in item.inputs]
    with np.errstate(all="ignore"):
        return {item: apply_op(item, inputs)}


def output_value(item: Node, values: Mapping[Value, Any], columns: Columns) -> Any:
    """An output from the values that have been computed, stored as its type says."""
    value = _value(item, values, columns)
    if isinstance(item.type, Vector) and item.type.sparse and not isinstance(value, Sparse):
        return Sparse.of(value)
    return value


def _value(item: Node, values: Mapping[Value, Any], columns: Columns) -> Any:
    """The value of any node that is an input, was picked from one, or has been computed."""
    if item in values:
        return values[item]
    if isinstance(item.op, Source):
        return columns[item.op.label]
    return apply_op(item, [_value(source, values, columns) for source in item.inputs])
