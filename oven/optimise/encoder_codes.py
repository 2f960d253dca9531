"""Which codes an encoder can give: the few whole numbers a column of its output may hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node
from flour.core.op import Array
from flour.ops.categorise import UNKNOWN, Categorise, CategoriseText
from flour.ops.discretise import Bins
from flour.ops.structure import AsVector, Concat, Select

Codes = NDArray[np.int64]


def codes_of(item: Node) -> list[Codes] | None:
    """For each column of a node all it may hold, ascending; None where that is not known."""
    op = item.op
    match op:
        case Categorise():
            return _codes(op, op.missing, op.unknown)
        case CategoriseText():
            return _codes(op, op.none, op.missing, op.unknown)
        case Bins():
            return [np.arange(count + 1) for count in np.diff(op.starts.array).tolist()]
    return _passed_on(item)


def _passed_on(item: Node) -> list[Codes] | None:
    """The same for what only moves columns."""
    if not isinstance(item.op, Select | AsVector | Concat):
        return None
    made: list[Codes] = []
    for part in item.inputs:
        found = codes_of(part)
        if found is None:
            return None
        made.extend(found)
    return [made[int(j)] for j in item.op.columns.array] if isinstance(item.op, Select) else made


def _codes(op: Categorise | CategoriseText, *others: Array) -> list[Codes]:
    """The codes of each column's entries, and those of what is no entry."""
    cuts = op.starts.array
    made = []
    for j, rest in enumerate(np.stack([other.array for other in others], axis=1)):
        every = np.concatenate([op.codes.array[cuts[j] : cuts[j + 1]], rest]).astype(np.int64)
        made.append(np.unique(every[every != UNKNOWN] if op.strict else every))
    return made
