"""Bounds of an ensemble's sums where columns are not known, as an ensemble.

Where a column is not known, a test of it may go both ways: its node becomes the tree of one side
with that of the other at each leaf, and leaves hold the least and the largest value that a row can
still reach. A side is one leaf where that would grow too large. So no row is ever outside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from flour.ops.trees.walk import LeafSums

S = TypeVar("S", bound="LeafSums")

Values = NDArray[np.float64]
#: Leaves of two sides that become one tree, and levels of a side that does not become a leaf.
_MOST_LEAVES, _DEEPEST = 256, 300


class _BoundedPart(NamedTuple):
    """A tree of known tests, with the extremes of its leaves' values."""

    low: Values
    high: Values
    leaves: int = 1
    depth: int = 0
    test: int = -1  # of leaves
    sides: tuple[Any, ...] = ()


def bounds(op: S, unknown: NDArray[np.bool_]) -> S:
    """The ensemble whose outputs 2k and 2k + 1 enclose output k, whatever these columns are.

    Either sum of n trees is off by (n + 1) eps times the sum of magnitudes at most, however it is
    added up and divided; bases are twice both of that apart.
    """
    made = _parts(op, unknown)
    sums = np.abs(op.base.array.astype(np.float64))
    for each, first in zip(made, op.target.array.tolist(), strict=True):
        sums[first : first + len(each.low)] += np.maximum(abs(each.low), abs(each.high))
    margin = 4.0 * (len(made) + 2) * np.finfo(op.dtype).eps * sums
    base = np.stack([op.base.array - margin, op.base.array + margin], axis=1).reshape(-1)
    target = (2 * op.target.array).astype(np.int32)
    return op.replace(**_tables(op, made), base=base, target=target, cover=())


def _parts(op: LeafSums, unknown: NDArray[np.bool_]) -> list[_BoundedPart]:
    """The trees, in which no test is of an unknown column."""
    feature, left, right = (each.array.tolist() for each in (op.feature, op.left, op.right))
    parts, value = dict[int, _BoundedPart](), op.value.array
    for at in reversed(range(len(feature))):  # children stand after their parents
        if feature[at] < 0:
            parts[at] = _BoundedPart(value[left[at]], value[left[at]])
        else:
            sides = parts.pop(left[at]), parts.pop(right[at])
            parts[at] = _both(*sides) if unknown[feature[at]] else _tested(at, *sides)
    return [parts[root] for root in op.roots.array.tolist()]


def _tested(at: int, *sides: _BoundedPart) -> _BoundedPart:
    low, high, leaves, depth = zip(*(side[:4] for side in sides), strict=True)
    if sum(leaves) == len(sides) and np.array_equal(*low) and np.array_equal(*high):
        return sides[0]
    return _BoundedPart(np.minimum(*low), np.maximum(*high), sum(leaves), 1 + max(depth), at, sides)


def _both(*sides: _BoundedPart) -> _BoundedPart:
    """The tree of both sides of a test whose outcome is not known."""
    small, large = sorted(sides, key=lambda part: part.leaves)
    if small.leaves * large.leaves > _MOST_LEAVES or small.depth > _DEEPEST:
        small = _BoundedPart(small.low, small.high)
    return _joined(large if large.depth <= _DEEPEST else _BoundedPart(large.low, large.high), small)


def _joined(part: _BoundedPart, rest: _BoundedPart) -> _BoundedPart:
    if part.sides:
        return _tested(part.test, *(_joined(side, rest) for side in part.sides))
    if rest.sides:
        return _joined(rest, part)
    return _BoundedPart(np.minimum(part.low, rest.low), np.maximum(part.high, rest.high))


def _tables(op: LeafSums, roots: list[_BoundedPart]) -> dict[str, Any]:
    """The tables of these trees, whose leaves have the extremes of each value side by side."""
    tests, leaves, starts = list[int](), list[Values](), list[int]()
    children = list[int](), list[int]()
    for root in roots:
        starts.append(len(tests))
        stack = [(root, 0, len(tests))]
        while stack:
            part, side, parent = stack.pop()
            at = len(tests)
            tests.append(part.test)
            children[0].append(len(leaves))
            children[1].append(0)
            if at > parent:
                children[side][parent] = at
            if part.sides:
                stack += [(part.sides[1], 1, at), (part.sides[0], 0, at)]
            else:
                leaves.append(np.stack([part.low, part.high], axis=1).reshape(-1))
    number, (left, right) = np.array(tests), np.array(children, np.int32)
    fields: dict[str, Any] = {"left": left, "right": right, "value": np.stack(leaves)}
    for name in ("feature", "threshold", "missing", "category", "length"):
        table = getattr(op, name).array
        if len(table):
            at_leaves = -1 if name in ("feature", "category") else 0
            fields[name] = np.where(number >= 0, table[number], at_leaves).astype(table.dtype)
    return {**fields, "roots": np.array(starts, np.int32)}
