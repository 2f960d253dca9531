"""concat(f(a), f(b), ...)  →  f(concat(a, b, ...))

Why      many small models side by side (one for each class, each target, each member of an
         ensemble) apply the same function to every column; applied to all columns at once it is
         one loop, and its inputs become neighbours that join_linears can join.
Unless   neighbours are not the same function, with the same static settings and float width;
         or another operator reads one of them.
Numerics none: the same operation on the same numbers, each with its own parameters.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

import numpy as np

from flour.core.node import Node, node
from flour.ops.bases import Elementwise
from flour.ops.structure import AsVector, Concat
from objectstore import Blob
from oven.optimise.affine import dtype_of
from oven.optimise.concat_chain import joined, width_of
from oven.optimise.pattern import BITS, Match, Rule, op, rest


def _function(m: Match, part: Node) -> Node | None:
    """The function that computes a part, below a conversion of a scalar to a vector; else None."""
    item = part.inputs[0] if isinstance(part.op, AsVector) else part
    lone = m.facts.only_for(part, m.root) and (item is part or m.facts.only_for(item, part))
    fits = isinstance(item.op, Elementwise) and type(item.op).infer is Elementwise.infer
    return item if lone and fits else None


def _kind(item: Node) -> tuple[object, ...]:
    """The properties that must agree: class, static settings and float width."""
    op = item.op
    static = tuple(
        (value.dtype.name if isinstance(value, Blob) else value) for value in op.fields().values()
    )
    return (type(op), static, dtype_of(item.inputs[0]), dtype_of(item))


def _build(m: Match) -> Node | None:
    functions = [(part, _function(m, part)) for part in m.root.inputs]
    keys = [object() if item is None else _kind(item) for _, item in functions]
    by_key = groupby(zip(keys, functions, strict=True), itemgetter(0))
    runs = [[pair for _, pair in run] for _, run in by_key]
    if len(runs) == len(functions):
        return None
    m.take(*(item for run in runs if len(run) > 1 for pair in run for item in pair if item))
    replacement = joined([item for run in runs for item in _joined_run(run)], m.root)
    return replacement if replacement.type == m.root.type else None


def _joined_run(run: list[tuple[Node, Node | None]]) -> list[Node]:
    """One function for all of a run."""
    items = [item for _, item in run if item is not None]
    if len(run) == 1 or not items:
        return [part for part, _ in run]
    wide = {
        key: _side_by_side(items, key)
        for key, value in items[0].op.fields().items()
        if isinstance(value, Blob)
    }
    return [node(items[0].op.replace(**wide), [node(Concat(), [item.inputs[0] for item in items])])]


def _side_by_side(items: list[Node], key: str) -> Blob:
    """A parameter of all parts side by side; one number that all share stays a single number."""
    values: list[Blob] = [item.op.fields()[key] for item in items]
    if len(set(values)) == 1 and values[0].array.size == 1:
        return values[0]
    wide = [
        np.broadcast_to(value.array.reshape(-1), (width_of(item),))
        for value, item in zip(values, items, strict=True)
    ]
    return Blob.of(np.concatenate(wide))


RULE = Rule(op(Concat)(rest("parts")), _build, BITS)
