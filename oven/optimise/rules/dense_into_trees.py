"""trees(x, stored sparsely)  →  trees(to_dense(x))

Why      trees look up columns by number, so they read rows with their zeros anyway. If the code
         that makes x writes the zeros, the row goes from one native stage to the next; a wide
         sparse vector would leave native code in between, to be made dense by Python.
Unless   x is wider than 4,096 columns, and a row no longer stays in cache; it is an input of the
         program; the zeros it does not store are missing to the trees; or another operator reads
         it in sparse form.
Numerics none: the same numbers are compared.
"""

from __future__ import annotations

from flour.core.node import Node, node
from flour.core.source import Source
from flour.core.types import Vector
from flour.ops.structure import ToDense
from flour.ops.trees.linear_trees import LinearTrees
from flour.ops.trees.trees import TreeLeaves, Trees
from flour.ops.trees.walk import Nodes
from oven.optimise.pattern import BITS, Match, Rule, hole, op

WIDEST = 4096


def _guard(m: Match) -> bool:
    x, walk = m["x"], m.op("trees", Nodes)
    stored = isinstance(x.type, Vector) and x.type.sparse and x.type.width <= WIDEST
    if not stored or walk.absent or isinstance(x.op, Source) or m.facts.is_output(x):
        return False
    return all(isinstance(reader.op, Nodes | ToDense) for reader in m.facts.readers(x))


def _build(m: Match) -> Node:
    return node(m.root.op, [node(ToDense(), [m["x"]])])


_TREES = op(Trees, TreeLeaves, LinearTrees, name="trees")
RULE = Rule(_TREES(hole("x")), _build, BITS, _guard)
