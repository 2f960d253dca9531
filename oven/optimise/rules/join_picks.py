"""concat(x[a], x[b], ...)  →  x[a and b],   of a vector or of a record

Why      columns are picked apart to be prepared apart; once the preparation has been folded into
         the weights, the picks can be joined again.
Unless   they are not adjacent or come from different sources; or the columns picked from are
         sparse, which costs more than it saves; or columns of a record differ in dtype.
Numerics none: the same columns in the same order.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from flour.core.node import Node, node
from flour.core.types import Record, Scalar, Vector
from flour.ops.source import Field, Pick
from flour.ops.structure import Concat, Element, Select
from oven.optimise.concat_chain import joined
from oven.optimise.pattern import BITS, Match, Rule, op, rest


def place(part: Node) -> object:
    """The source of a pick, equal for neighbours that can become one; else the part itself."""
    if isinstance(part.op, Select | Element):
        kind = part.inputs[0].type
        return part if isinstance(kind, Vector) and kind.sparse else ("vector", part.inputs[0])
    if isinstance(part.op, Pick | Field) and isinstance(part.type, Vector | Scalar):
        record = part.inputs[0].type
        assert isinstance(record, Record)
        kinds = {record[label] for label in _labels(part)}
        return ("record", part.inputs[0], kinds.pop()) if len(kinds) == 1 else part
    return part


def _labels(part: Node) -> tuple[str, ...]:
    return part.op.labels if isinstance(part.op, Pick) else (str(part.op.fields()["label"]),)


def _columns(part: Node) -> list[int]:
    if isinstance(part.op, Element):
        return [part.op.column]
    return [int(column) for column in part.op.fields()["columns"].array]


def _joined_run(run: list[Node]) -> list[Node]:
    first = run[0]
    if len(run) == 1 or not isinstance(first.op, Select | Element | Pick | Field):
        return run
    if isinstance(first.op, Pick | Field):
        return [node(Pick(tuple(label for part in run for label in _labels(part))), first.inputs)]
    columns = [column for part in run for column in _columns(part)]
    return [node(Select(np.asarray(columns, np.int64)), first.inputs)]


def _build(m: Match) -> Node | None:
    runs = [list(run) for _, run in groupby(m.root.inputs, place)]
    items = [item for run in runs for item in _joined_run(run)]
    if len(items) == len(m.root.inputs):
        return None
    m.take(*(item for run in runs if len(run) > 1 for item in run))
    replacement = joined(items, m.root)
    return replacement if replacement.type == m.root.type else None


RULE = Rule(op(Concat)(rest("parts")), _build, BITS)
