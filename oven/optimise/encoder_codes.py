"""The codes that an encoder can produce: the possible values of each output column."""

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
    """The possible values of each column of a node, ascending; None if they are not known."""
    op = item.op
    match op:
        case Categorise():
            return _codes(op, op.missing, op.unknown)
        case CategoriseText():
            return _codes(op, op.none, op.missing, op.unknown)
        case Bins():
            return [np.arange(count + 1) for count in np.diff(op.starts.array).tolist()]
    return _moved_columns(item)


def _moved_columns(item: Node) -> list[Codes] | None:
    """As `codes_of`, for operators that only move columns."""
    if not isinstance(item.op, Select | AsVector | Concat):
        return None
    columns: list[Codes] = []
    for part in item.inputs:
        codes = codes_of(part)
        if codes is None:
            return None
        columns.extend(codes)
    return (
        [columns[int(j)] for j in item.op.columns.array] if isinstance(item.op, Select) else columns
    )


def _codes(op: Categorise | CategoriseText, *others: Array) -> list[Codes]:
    """The codes of each column's categories, and the codes for missing and unknown values."""
    cuts = op.starts.array
    columns = []
    for j, rest in enumerate(np.stack([other.array for other in others], axis=1)):
        every = np.concatenate([op.codes.array[cuts[j] : cuts[j + 1]], rest]).astype(np.int64)
        columns.append(np.unique(every[every != UNKNOWN] if op.strict else every))
    return columns
