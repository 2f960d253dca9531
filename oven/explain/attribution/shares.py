"""The shares of linear terms as programs, so that native code computes them with the score."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.node import Node, node
from flour.core.op import Columns
from flour.core.raw_columns import NO_COLUMN
from flour.core.sparse import densify
from flour.core.types import Vector
from flour.ops.elementwise import Cast, Multiply
from flour.ops.linear import Linear
from flour.ops.structure import AsVector
from oven.explain.attribution.terms import Weighted


class Shares(NamedTuple):
    """A program of what a term adds: for each of some raw columns, a number for each score."""

    node: Node
    columns: NDArray[np.int64]

    def add(self, values: NDArray[np.float64], found: Columns) -> None:
        """Add the shares that were found, to rows of columns of scores."""
        held, columns = densify(found), self.columns
        first, last = int(columns[0]), int(columns[-1])
        ordered = np.array_equal(columns, np.arange(first, last + 1))  # a slice is faster
        place = slice(first, last + 1) if ordered else columns
        if values.shape[2] == 1:  # numpy is slow where the last axis has one element
            values[:, place, 0] += held.reshape(len(values), len(columns))
        else:
            values[:, place] += held.reshape(len(values), len(columns), -1)


def shares_of(term: Weighted, other: int) -> Shares:
    """The program of a term's shares; what is made of no column is that of the number `other`."""
    x = term.node if isinstance(term.node.type, Vector) else node(AsVector(), [term.node])
    x = node(Cast("float64"), [x])
    made = np.where(term.made == NO_COLUMN, other, term.made)
    scores, width = term.weights.shape
    columns, place = np.unique(made, return_inverse=True)
    if scores == 1 and len(columns) == width and not getattr(x.type, "sparse", False):
        return Shares(node(Multiply(term.weights[0]), [x]), made)
    weights = np.zeros((len(columns), scores, width))
    weights[place.reshape(-1), :, np.arange(width)] = term.weights.T
    flat = weights.reshape(-1, width)
    return Shares(node(Linear(flat, np.zeros(0)), [x]), columns)
