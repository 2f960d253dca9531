"""concat(table(a), table(b), ...)  →  table(concat(a, b, ...))

Why      a preparation for each column by itself is how many write a ColumnTransformer; encoders,
         bins and look-ups have a table for each column anyway, so that one operator does for all
         of them in one loop. A hundred encoders side by side are a minute of compiling.
Unless   neighbours are not the same operator with the same static settings, over the same dtype;
         or something else reads one of them; or texts come from different places, as nothing lays
         those side by side.
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
from flour.ops.storage import ToDense
from flour.ops.structure import Concat
from objectstore import Blob, Strings
from oven.optimise.affine import dtype_of
from oven.optimise.concat_chain import joined
from oven.optimise.pattern import Match, op, rest
from oven.optimise.rule import BITS, Rule
from oven.optimise.rules import join_picks

TABLES: tuple[type[Op], ...] = (Categorise, CategoriseText, LookUp, OneHot, Bins, ToDense)
"""Operators with a run of entries for each column, from starts[j] to starts[j + 1]; and what makes
theirs dense, which has no entries."""


def _kind(m: Match, part: Node) -> object:
    """Equal for neighbours that can become one; else equal to nothing, not even the same part."""
    if not isinstance(part.op, TABLES) or not m.facts.only_for(part, m.root):
        return object()
    source = part.inputs[0]
    where: object = dtype_of(source)
    if where in ("", "string"):
        where = join_picks.place(source)
        if where is source:  # nothing would lay them side by side
            return object()
    return (type(part.op), where, *_static(part.op))


def _static(table: Op) -> Iterator[object]:
    """What must agree: all but the entries, and of those the dtype."""
    for value in table.fields().values():
        yield value.dtype.name if isinstance(value, Blob) else isinstance(value, Strings) or value


def _one(run: Sequence[Node]) -> list[Node]:
    """One operator for all of a run."""
    if len(run) == 1:
        return list(run)
    made = run[0].op.replace(**dict(_columns([item.op for item in run])))
    sources = node(Concat(), [item.inputs[0] for item in run])
    return [node(made, [sources])]


def _columns(tables: Sequence[Op]) -> Iterator[tuple[str, Blob | Strings]]:
    """The parameters of all operators side by side."""
    for key, value in tables[0].fields().items():
        found = [table.fields()[key] for table in tables]
        if key == "starts":
            yield key, Blob.of(_runs([item.array for item in found]))
        elif isinstance(value, Blob):
            yield key, Blob.of(np.concatenate([item.array for item in found]))
        elif isinstance(value, Strings):
            yield key, Strings.of(text for item in found for text in item)


def _runs(starts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Where each column's run starts, once all tables are one."""
    lengths = [np.diff(item) for item in starts]
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))


def _build(m: Match) -> Node | None:
    runs = [list(run) for _, run in groupby(m.root.inputs, lambda part: _kind(m, part))]
    if len(runs) == len(m.root.inputs):
        return None
    m.take(*(item for run in runs if len(run) > 1 for item in run))
    made = joined([item for run in runs for item in _one(run)], m.root)
    return made if made.type == m.root.type else None


RULE = Rule(pattern=op(Concat)(rest("parts")), build=_build, preserves=BITS)
