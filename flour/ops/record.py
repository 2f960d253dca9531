"""Records made and narrowed inside a program: mixed columns on their way from step to step.

Picking a column out of either goes straight to the column's own source (`column`, `columns`), so
that a record is assembled only where it is an output of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from flour.core.check import expect
from flour.core.op import Columns, Op
from flour.core.raw_columns import Made
from flour.core.sparse import densify
from flour.core.types import Record, Scalar, Type, Vector
from flour.language.flow import Flow
from flour.ops.source import Field, Pick, check_columns, places


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


# --- picking, straight from a column's own source -----------------------------------------------


def column(record: Flow, label: str) -> Flow:
    """One column of a record."""
    item = record.node
    if label in getattr(item.type, "names", ()):
        if isinstance(item.op, Narrow):
            return column(record.input(0), label)
        if isinstance(item.op, Bundle):
            number, j = _spots(record)[label]
            part = record.input(number)
            return part.element(j) if isinstance(part.type, Vector) else part
        assert isinstance(item.type, Record)
        if item.op.name == "ParseCsv":
            from flour.ops.csv import CsvField, is_text_field  # few programs read lines of CSV

            if is_text_field(item.type[label]):
                return CsvField(**item.op.fields(), column=label)(record.input(0))
    return Field(label)(record)


def columns(record: Flow, labels: Sequence[str]) -> Flow:
    """Several columns of a record as one vector."""
    labels = tuple(labels)
    item = record.node
    if set(labels) <= set(getattr(item.type, "names", ())) and labels:
        if isinstance(item.op, Narrow):
            return columns(record.input(0), labels)
        if isinstance(item.op, Bundle):
            parts = _runs(record, labels)
            return parts[0].concat(*parts[1:]) if len(parts) > 1 else parts[0]
    return Pick(labels)(record)


def _spots(bundle: Flow) -> dict[str, tuple[int, int]]:
    """For each name of a bundle: the number of its input, and the column of that input."""
    widths = [len(_spread(item.type)) for item in bundle.node.inputs]
    spots = [(number, j) for number, width in enumerate(widths) for j in range(width)]
    record = bundle.type
    assert isinstance(record, Record)
    return dict(zip(record.names, spots, strict=True))


def _runs(bundle: Flow, labels: Sequence[str]) -> list[Flow]:
    """The picked columns as vectors, those that follow each other from one input together."""
    spots = _spots(bundle)
    parts = []
    for number, group in groupby((spots[label] for label in labels), lambda spot: spot[0]):
        part, picked = bundle.input(number), [j for _, j in group]
        if not isinstance(part.type, Vector):
            parts += [part.as_vector()] * len(picked)
        elif picked == list(range(part.type.width)):
            parts.append(part)
        else:
            parts.append(part.select(picked))
    return parts


def bundle(labels: Sequence[str], flows: Sequence[Flow]) -> Flow:
    """The flows as the named columns of a record."""
    return Bundle(tuple(labels))(*flows)
