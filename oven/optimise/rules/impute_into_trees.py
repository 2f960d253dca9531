"""trees(x, or a value where x is NaN)  →  trees that send NaN where the value goes

Why      each node's test of the imputed value has a fixed answer: it becomes the direction in
         which the node sends missing values, and the imputer is dropped.
Unless   another operator reads the imputed columns; the marker is a number, not NaN; a node takes
         zeros for missing too (they would take the new direction with NaN), or the zeros that a
         sparse vector does not store are missing.
Numerics none: only the tests of the imputed values are computed, once, at baking.
"""

from __future__ import annotations

import numpy as np

from flour.core.node import Node, node
from flour.core.types import Type, Vector
from flour.ops.impute import Impute
from flour.ops.trees.walk import LEFT, RIGHT, ZEROS, Walk
from objectstore import Blob
from oven.optimise.affine import Numbers, dtype_of, is_float
from oven.optimise.concat_chain import ChainPart, joined, parts, seams
from oven.optimise.pattern import BITS, Match, Rule, hole, op


def _replaces_nan(imputed: Impute, kind: Type) -> bool:
    nan = bool(np.isnan(imputed.marker)) and is_float(kind)
    return nan and not np.any(np.isnan(imputed.values.array))


def _guard(m: Match) -> bool:
    kind, walk = m["x"].type, m.op("trees", Walk)
    stored = isinstance(kind, Vector) and not kind.sparse
    return stored and not (walk.zeros and bool(np.any(walk.missing.array.astype(int) >= ZEROS)))


def _ways(walk: Walk, part: ChainPart, values: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """The nodes that test a part, and the direction in which each sends the imputed value."""
    feature = walk.feature.array.astype(np.int64)
    columns = part.columns
    nodes = np.flatnonzero((feature >= columns.start) & (feature < columns.stop))
    seen = np.broadcast_to(values, (part.width,))[feature[nodes] - columns.start]
    with np.errstate(over="ignore"):
        seen = seen.astype(np.float32 if walk.narrow else np.float64).astype(np.float64)
    return nodes, np.where(walk.passes(seen, nodes), LEFT, RIGHT)


def _build(m: Match) -> Node | None:
    walk = m.op("trees", Walk)
    missing = walk.missing.array.copy()
    items: list[Node] = []
    fired = False
    for part in parts(m, m["x"]):
        item, imputed = part.item, part.item.op
        fits = isinstance(imputed, Impute) and _replaces_nan(imputed, item.inputs[0].type)
        if not (fits and part.width and m.facts.only_for(item, part.reader)):
            items.append(item)
            continue
        assert isinstance(imputed, Impute)
        values = imputed.values.array.reshape(-1).astype(dtype_of(part.item)).astype(np.float64)
        nodes, ways = _ways(walk, part, values)
        missing[nodes] = ways
        items.append(part.item.inputs[0])
        m.take(part.item)
        fired = True
    if not fired:
        return None
    m.take(*seams(m, m["x"]))
    return node(walk.replace(missing=Blob.of(missing)), [joined(items, m["x"])])


RULE = Rule(op(Walk, name="trees")(hole("x")), _build, BITS, _guard, beside=(Impute,))
