"""Columns picked from f(x)  →  f of the picked columns of x only

Why      feature selection comes last, after all columns have been computed. Pushed down to the
         sources, a column that is not used is never read, and a branch that is not used never runs.
Unless   the vector has other readers than picks, or is computed and has more picks than columns:
         then computing it once is cheaper; or the picks jump to and fro between the parts of a
         concatenation, which would cut it into many small ones; or an operator that can refuse
         a row (a strict encoder) is only in a branch that would be dropped.
Numerics none: the same operations on fewer columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from flour.core.node import Node, node
from flour.core.types import Scalar, Type, Vector
from flour.ops.bases import Elementwise
from flour.ops.binary import Binary
from flour.ops.elementwise import Cast
from flour.ops.source import Field, Pick
from flour.ops.structure import AsVector, Concat, Element, Select, ToDense, ToSparse
from oven.optimise.concat_chain import width_of
from oven.optimise.finite import refusing
from oven.optimise.pattern import BITS, Match, Rule, hole, op

Columns = Sequence[int]


def _picked_columns(item: Node) -> list[int]:
    """The columns a Select or an Element picks."""
    if isinstance(item.op, Element):
        return [item.op.column]
    assert isinstance(item.op, Select)
    return [int(column) for column in item.op.columns.array]


def pick(x: Node, columns: Columns) -> Node:
    """These columns of a vector, itself if they are all of them in order."""
    assert isinstance(x.type, Vector)
    whole = list(columns) == list(range(x.type.width))
    return x if whole else node(Select(np.asarray(columns, np.int64)), [x])


def _only_picked_from(m: Match, *, computed: bool) -> bool:
    x = m["x"]
    readers = m.facts.readers(x)
    if m.facts.is_output(x) or not all(isinstance(r.op, Select | Element) for r in readers):
        return False
    assert isinstance(x.type, Vector)
    return not computed or sum(len(_picked_columns(r)) for r in readers) <= x.type.width


# --- by the operator below the pick: columns -> node of exactly these, or None -------------------


def _from_elementwise(m: Match, x: Node, columns: Columns) -> Node | None:
    step = m.op("x", Elementwise)
    by_column = type(step).infer is Elementwise.infer
    if not by_column or not _only_picked_from(m, computed=True):
        return None
    return node(step.on_columns(np.asarray(columns)), [pick(x.inputs[0], columns)])


def _from_concat(m: Match, x: Node, columns: Columns) -> Node | None:
    if not _only_picked_from(m, computed=False):
        return None
    starts = np.cumsum([0, *(width_of(part) for part in x.inputs)])
    where = np.searchsorted(starts, np.asarray(columns), side="right") - 1
    runs = [list(run) for _, run in groupby(zip(where, columns, strict=True), lambda w: w[0])]
    # A row that is refused now must be refused still.
    loses = not refusing([x]) <= refusing([x.inputs[each] for each in where])
    if loses or len(runs) > len(x.inputs):
        return None
    parts = [
        _part(x.inputs[run[0][0]], [int(column - starts[run[0][0]]) for _, column in run])
        for run in runs
    ]
    return parts[0] if len(parts) == 1 else node(Concat(), parts)


def _part(part: Node, columns: Columns) -> Node:
    if isinstance(part.type, Vector):
        return pick(part, columns)
    return part if len(columns) == 1 else node(Concat(), [part] * len(columns))


def _from_dense(m: Match, x: Node, columns: Columns) -> Node | None:
    # With another operator below, the pick would only change places with `ToDense`.
    inner = x.inputs[0]
    if not isinstance(inner.op, Concat) or not _only_picked_from(m, computed=False):
        return None
    return node(ToDense(), [node(Select(np.asarray(columns, np.int64)), [inner])])


def _build(m: Match) -> Node | None:
    x, columns = m["x"], _picked_columns(m.root)
    if not columns:
        return None
    m.take(x)
    if isinstance(m.root.op, Element):
        return _single_column(m, x, columns[0])
    replacement: Node | None = None
    match x.op:
        case Select(columns=inner):
            replacement = pick(x.inputs[0], [int(inner.array[column]) for column in columns])
        case Concat():
            replacement = _from_concat(m, x, columns)
        case Pick(labels=labels):
            replacement = node(Pick(tuple(labels[column] for column in columns)), x.inputs)
        case ToDense():
            replacement = _from_dense(m, x, columns)
        case Binary() if _only_picked_from(m, computed=True):
            sides = [pick(s, columns) if isinstance(s.type, Vector) else s for s in x.inputs]
            replacement = node(x.op, sides)
        case Elementwise():
            replacement = _from_elementwise(m, x, columns)
    return None if replacement is None else _as(replacement, m.root.type)


def _as(replacement: Node, kind: Type) -> Node | None:
    """The node in the dtype and storage of the node it replaces."""
    assert isinstance(kind, Vector)
    if not isinstance(replacement.type, Vector):
        replacement = node(AsVector(), [replacement])
    assert isinstance(replacement.type, Vector)
    if replacement.type.dtype != kind.dtype:
        if "string" in (replacement.type.dtype, kind.dtype):
            return None
        replacement = node(Cast(kind.dtype), [replacement])
    if kind.sparse and not (isinstance(replacement.type, Vector) and replacement.type.sparse):
        replacement = node(ToSparse(), [replacement])
    return replacement if replacement.type == kind else None


def _single_column(m: Match, x: Node, column: int) -> Node | None:
    """One column as a scalar; for a vector made of a scalar, that scalar."""
    replacement: Node | None = None
    match x.op:
        case AsVector():
            replacement = x.inputs[0]
        case Select(columns=columns):
            replacement = node(Element(int(columns.array[column])), x.inputs)
        case Pick(labels=labels):
            replacement = node(Field(labels[column]), x.inputs)
        case Concat():
            replacement = _element_of_concat(m, x, column)
        case Binary() if _only_picked_from(m, computed=True):
            sides = [
                node(Element(column), [s]) if isinstance(s.type, Vector) else s for s in x.inputs
            ]
            replacement = node(x.op, sides)
        case Elementwise() if _only_picked_from(m, computed=True):
            if type(x.op).infer is Elementwise.infer:
                inner = node(Element(column), x.inputs)
                replacement = node(x.op.on_columns(np.array([column])), [inner])
    kind = m.root.type
    assert isinstance(kind, Scalar)
    if replacement is None or replacement.type == kind:
        return replacement
    if not isinstance(replacement.type, Scalar) or kind.dtype == "string":
        return None
    replacement = node(Cast(kind.dtype), [replacement])
    return replacement if replacement.type == kind else None


def _element_of_concat(m: Match, x: Node, column: int) -> Node | None:
    if not _only_picked_from(m, computed=False):
        return None
    for part in x.inputs:
        width = width_of(part)
        if column < width:
            if not refusing([x]) <= refusing([part]):
                return None
            return node(Element(column), [part]) if isinstance(part.type, Vector) else part
        column -= width
    return None


RULE = Rule(op(Select, Element, name="pick")(hole("x")), _build, BITS)
