"""A score as a sum of terms: weighted columns that are made of one raw column each, and trees.

The program is followed from the score towards its inputs. Linear operators say how weights of their
answer become weights of their inputs (`Op.pull`). Columns that are made of one raw column each
(`Op.made_of`) are terms; so are trees that read nothing else. Anything else that mixes raw columns
has no exact form here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flour.core.node import Node, made_of, node, topological
from flour.core.op import Columns
from flour.core.raw_columns import NO_COLUMN, SEVERAL, Made
from flour.core.reference import apply_op
from flour.core.source import Source
from flour.core.sparse import Sparse, densify
from flour.core.types import Record, Vector, width_of
from flour.ops.bases import Elementwise
from flour.ops.elementwise import Cast, Multiply
from flour.ops.linear import Linear
from flour.ops.structure import AsVector
from flour.ops.trees.trees import Trees
from oven.explain.attribution.tree_tables import Numbers, Places


class Weighted(NamedTuple):
    """A value whose columns have weights in each score.

    `made` says which raw column each of its columns is made of; of trees, each of their features.
    """

    node: Node
    weights: Numbers
    made: Made


class ScoreTerms(NamedTuple):
    """A score as a sum."""

    score: Node
    columns: tuple[str, ...]
    linear: tuple[Weighted, ...]
    trees: tuple[Weighted, ...]
    #: The operator that mixes raw columns in a way that has no exact form; empty if there is none.
    inexact: str = ""


def terms(score: Node) -> ScoreTerms:
    """The score as a sum of terms, as far as there are exact ones."""
    order = topological([score])
    columns, made = raw_columns(order)
    pending: dict[Node, Numbers] = {score: np.eye(width_of(score.type))}
    linear: list[Weighted] = []
    trees: list[Weighted] = []
    for item in reversed(order):
        if item not in pending:
            continue
        weights = pending.pop(item)
        if isinstance(item.op, Trees) and not np.any(made[item.inputs[0]] == SEVERAL):
            trees.append(Weighted(item, weights, made[item.inputs[0]]))
            continue
        pulled = item.op.pull(weights, *(source.type for source in item.inputs))
        alone = not np.any(made[item] == SEVERAL)
        if alone and (pulled is None or isinstance(item.op, Elementwise)):
            linear.append(Weighted(item, weights, made[item]))
        elif pulled is None:
            return ScoreTerms(score, columns, (), (), item.op.name)
        else:
            for source, part in zip(item.inputs, pulled, strict=True):
                pending[source] = pending[source] + part if source in pending else part
    return ScoreTerms(score, columns, tuple(linear), tuple(trees))


def raw_columns(order: Sequence[Node]) -> tuple[tuple[str, ...], dict[Node, Made]]:
    """The names of the raw columns, and what each value is made of."""
    sources = [item for item in order if isinstance(item.op, Source)]
    names = [name for item in sources for name in _names(item, alone=len(sources) == 1)]
    return tuple(names), made_of(order)


def _names(item: Node, *, alone: bool) -> list[str]:
    assert isinstance(item.op, Source)
    label = item.op.label
    match item.type:
        case Record() as record:
            return [name if alone else f"{label}.{name}" for name in record.names]
        case Vector(width=width):
            return [f"{label}[{column}]" for column in range(width)]
    return [label]


def score_of(output: Node) -> Node:
    """The raw score that an output restates (a probability), or the output itself."""
    return _restated(output) or output


def _restated(item: Node) -> Node | None:
    """The value that this one restates, through operators that only move values."""
    if item.op.restates:
        return score_of(item.inputs[0])
    if not item.op.moves:
        return None
    found = {_restated(source) for source in item.inputs}
    return found.pop() if len(found) == 1 else None


def at_terms(sum_of: ScoreTerms, linear: Sequence[Numbers], trees: Sequence[Numbers]) -> Numbers:
    """The score where the terms have these values, which are one row each."""
    values: dict[Node, Columns] = {
        term.node: row.reshape((1, -1) if isinstance(term.node.type, Vector) else -1)
        for term, row in zip((*sum_of.linear, *sum_of.trees), (*linear, *trees), strict=True)
    }
    for item in topological([sum_of.score]):
        if item not in values and all(source in values for source in item.inputs) and item.inputs:
            values[item] = apply_op(item, [values[source] for source in item.inputs])
    return np.asarray(densify(values[sum_of.score]), np.float64).reshape(-1)


def ours(held: Columns) -> Columns:
    """A column of a plan's answer as the definitions read it."""
    return Sparse.from_scipy(held) if hasattr(held, "tocsr") else held


class Shares(NamedTuple):
    """A program of what a term adds: for each of some raw columns, a number for each score."""

    node: Node
    columns: Places

    def add(self, values: Numbers, found: Columns) -> None:
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
    return Shares(node(Linear(weights.reshape(-1, width), np.zeros(0)), [x]), columns)
