"""categorise(leaves(x))  →  leaves(x), numbered by their codes

Why      a leaf always has the same number, and so the same code: it can be looked up at baking. The
         numbers of leaves are not consecutive, so each row searched for them, once for each tree.
Unless   another operator reads the numbers of the leaves; two trees share a leaf; or a number is
         none of the categories, and that is an error.
Numerics none: codes are whole numbers, found by the definition of categorise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node, node
from flour.ops.categorise import UNKNOWN, Categorise
from flour.ops.trees.lockstep import NodeTable, Outline
from flour.ops.trees.trees import TreeLeaves
from objectstore import Blob
from oven.optimise.pattern import BITS, Match, Rule, hole, op


def _build(m: Match) -> Node | None:
    leaves, categories = m.op("leaves", TreeLeaves), m.op("codes", Categorise)
    if not m.facts.only_for(m["leaves"], m.root):
        return None
    table = NodeTable(leaves)
    at = np.flatnonzero(~table.inner)
    which, tree = table.left[at].astype(np.int64), Outline(table).tree[at]
    number = leaves.number.array.astype(np.int64)
    codes = _codes(categories, number[which], tree)
    made = number.copy()
    made[which] = codes
    if np.any(made[which] != codes) or (categories.strict and np.any(codes == UNKNOWN)):
        return None
    return node(leaves.replace(number=Blob.of(made)), [m["x"]])


def _codes(op: Categorise, number: NDArray[np.int64], tree: NDArray[np.int64]) -> NDArray[np.int64]:
    """The code of each leaf's number in its tree's column; UNKNOWN where that is an error."""
    unknown = np.full_like(op.unknown.array, UNKNOWN) if op.strict else op.unknown.array
    order, count = np.argsort(tree, kind="stable"), np.bincount(tree, minlength=len(unknown))
    place = np.zeros(len(tree), np.int64)
    place[order] = np.arange(len(tree)) - np.repeat(np.cumsum(count) - count, count)
    rows = np.zeros((int(count.max()), len(unknown)), np.int64)
    rows[place, tree] = number
    lenient = op.replace(strict=False, unknown=Blob.of(unknown))
    codes: NDArray[np.int64] = lenient.reference(rows)[place, tree]
    return codes


RULE = Rule(op(Categorise, name="codes")(op(TreeLeaves, name="leaves")(hole("x"))), _build, BITS)
