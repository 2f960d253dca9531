"""Records made and narrowed inside a program: mixed columns on their way from step to step.

Picking a column out of either goes straight to the column's own source (`Flow.field`,
`Flow.columns`), so that a record is assembled only where it is an output of the program.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flour.core.check import expect
from flour.core.op import Columns, Op
from flour.core.raw_columns import Made
from flour.core.sparse import densify
from flour.core.types import Record, Scalar, Type, Vector
from flour.ops.source import check_columns, places


class Narrow(Op):
    """Some columns of a record, in this order, still as a record."""

    labels: tuple[str, ...]

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return made[0][places(kinds[0], self.labels)]

    def infer(self, record: Record) -> Record:
        check_columns(record, self.labels)
        return Record(tuple((label, record[label]) for label in self.labels), record.positional)

    def reference(self, record: Columns) -> Columns:
        return {label: record[label] for label in self.labels}


class Bundle(Op):
    """The inputs as the named columns of a record, a vector as one name for each of its columns."""

    method = ""
    labels: tuple[str, ...]

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return np.concatenate(made)

    def infer(self, *inputs: Type) -> Record:
        kinds = [kind for item in inputs for kind in _spread(item)]
        expect(
            len(kinds) == len(self.labels),
            f"bundle has {len(self.labels)} names for {len(kinds)} columns",
        )
        expect(len(set(self.labels)) == len(self.labels), "two columns have one name")
        return Record(tuple(zip(self.labels, kinds, strict=True)), positional=True)

    def reference(self, *inputs: Columns) -> Columns:
        columns: list[Columns] = []
        for item in map(densify, inputs):
            many = not isinstance(item, list) and item.ndim == 2
            columns += list(item.T) if many else [item]
        return dict(zip(self.labels, columns, strict=True))


def _spread(kind: Type) -> list[Type]:
    """The types of the columns an input contributes."""
    expect(not isinstance(kind, Record), "a record cannot hold records")
    if isinstance(kind, Vector):
        return [Scalar(kind.dtype)] * kind.width
    return [kind]
