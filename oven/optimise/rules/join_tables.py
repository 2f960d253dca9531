"""concat(table(a), table(b), ...)  →  table(concat(a, b, ...))

Why      many ColumnTransformers have a step for each single column; encoders, bins and look-ups
         have a table for each column anyway, so that one operator in one loop can do all of them.
         A hundred encoders side by side take a minute to compile.
Unless   neighbours are not the same operator with the same static settings, over the same dtype;
         or another operator reads one of them; or texts come from different sources, as no
         operator joins those into one vector.
Numerics none: the same entries of the same tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node, node
from flour.core.op import Op
from flour.ops.categorise import Categorise, CategoriseText
from flour.ops.discretise import Bins
from flour.ops.encode import LookUp, OneHot
from flour.ops.structure import Concat, ToDense
from objectstore import Blob, Strings
from oven.optimise.affine import dtype_of
from oven.optimise.concat_chain import joined
from oven.optimise.pattern import BITS, Match, Rule, op, rest
from oven.optimise.rules import join_picks

TABLES: tuple[type[Op], ...] = (Categorise, CategoriseText, LookUp, OneHot, Bins, ToDense)
"""Operators with a run of entries for each column, from starts[j] to starts[j + 1]; and `ToDense`
after them, which has no entries."""


def _kind(m: Match, part: Node) -> object:
    """A key, equal for neighbours that can become one; otherwise unequal to any key."""
    if not isinstance(part.op, TABLES) or not m.facts.only_for(part, m.root):
        return object()
    source = part.inputs[0]
    where: object = dtype_of(source)
    if where in ("", "string"):
        where = join_picks.place(source)
        if where is source:  # no operator joins them
            return object()
    return (type(part.op), where, *_static(part.op))


def _static(table: Op) -> Iterator[object]:
    """The settings that must agree: all but the entries, and the dtype of the entries."""
    for value in table.fields().values():
        yield value.dtype.name if isinstance(value, Blob) else isinstance(value, Strings) or value


def _joined_run(run: Sequence[Node]) -> list[Node]:
    """One operator for all of a run."""
    if len(run) == 1:
        return list(run)
    joined_op = run[0].op.replace(**dict(_columns([item.op for item in run])))
    return [node(joined_op, [node(Concat(), [item.inputs[0] for item in run])])]


def _columns(tables: Sequence[Op]) -> Iterator[tuple[str, Blob | Strings]]:
    """The parameters of all operators side by side."""
    for key, value in tables[0].fields().items():
        values = [table.fields()[key] for table in tables]
        if key == "starts":
            yield key, Blob.of(_runs([item.array for item in values]))
        elif isinstance(value, Blob):
            yield key, Blob.of(np.concatenate([item.array for item in values]))
        elif isinstance(value, Strings):
            yield key, Strings.of(text for item in values for text in item)


def _runs(starts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The start of each column's run in the joined table."""
    lengths = [np.diff(item) for item in starts]
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))


def _build(m: Match) -> Node | None:
    runs = [list(run) for _, run in groupby(m.root.inputs, lambda part: _kind(m, part))]
    if len(runs) == len(m.root.inputs):
        return None
    m.take(*(item for run in runs if len(run) > 1 for item in run))
    replacement = joined([item for run in runs for item in _joined_run(run)], m.root)
    return replacement if replacement.type == m.root.type else None


RULE = Rule(op(Concat)(rest("parts")), _build, BITS, beside=TABLES)
