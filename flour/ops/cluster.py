"""Clusterers that know their clusters: the nearest centre, or a walk down a tree of pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core import words
from flour.core.check import expect, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import FittedNumbers, write
from flour.core.op import Arity, Array, Columns, Op
from flour.core.types import Scalar, Type
from flour.core.words import Number, Row, indexable
from flour.language.adapters import Fitted, Importer, adapts, declines
from flour.language.flow import Flow


class Descend(Op, arity=Arity.AGGREGATE):
    """The leaf a row reaches: at node j it goes right if column j is above zero, else left.

    `left` and `right` hold the number of the next node, or -1 - leaf. Children come after parents.
    """

    left: Array
    right: Array

    def check(self) -> None:
        count = np.arange(len(self.left))
        for table in (self.left, self.right):
            side: Any = table.array
            whole = side.dtype.kind == "i" and side.shape == count.shape
            forward = whole and np.all((side < 0) | (side > count))
            if not forward or not len(count) or np.any(side >= len(count)):
                raise ParameterError("the children of a node are leaves or come after it")

    def infer(self, x: Type) -> Scalar:
        kind = vector(x, "descend", len(self.left))
        expect(kind.dtype != "bool", "descend compares numbers with zero")
        return Scalar("int64")

    def reference(self, x: Columns) -> Columns:
        left, right = self.left.array.astype(np.int64), self.right.array.astype(np.int64)
        rows, node = np.arange(len(x)), np.zeros(len(x), np.int64)
        for _ in range(len(left)):
            inner = np.maximum(node, 0)
            after = np.where(x[rows, inner] > 0, right[inner], left[inner])
            node = np.where(node < 0, node, after)
        return -1 - node

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        left, right = FittedNumbers(self.left, "int64"), FittedNumbers(self.right, "int64")
        return e.let(write(e, leaf, x, left, right), "int64")


def leaf(x: Row, left: words.Numbers, right: words.Numbers) -> Number:
    """The number of the leaf that a row reaches."""
    columns, node = indexable(x), 0
    while node >= 0:
        node = right[node] if columns[node] > 0 else left[node]
    return -1 - node


def _numbers(count: int) -> Any:
    """Cluster numbers as k-means gives them."""
    return np.arange(count, dtype=np.int32)


def _squared_lengths(points: NDArray[Any]) -> Any:
    return np.einsum("ij,ij->i", points, points)


# --- k-means --------------------------------------------------------------------------------------


@adapts("sklearn.cluster.KMeans", "sklearn.cluster.MiniBatchKMeans")
def _k_means(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    x, centres = to.floats(x), fit.cluster_centers_
    # The row's own length is the same for every centre, so the library leaves it out.
    nearness = x.linear(-2 * centres, _squared_lengths(centres))
    label = nearness.arg_min().take(_numbers(len(centres)))
    return {"label": label, "distances": x.squared_distances(centres).sqrt()}


class _Bisection(NamedTuple):
    """The inner nodes of a bisecting tree, parents first."""

    pairs: list[Any]
    left: list[int]
    right: list[int]


@adapts("sklearn.cluster.BisectingKMeans")
def _bisecting(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    x, walk = to.floats(x), _Bisection([], [], [])
    _bisect(fit._bisecting_tree, getattr(fit, "_X_mean", None), walk)
    distances = x.squared_distances(fit.cluster_centers_).sqrt()
    if not walk.pairs:
        only = np.array([fit._bisecting_tree.label], np.int32)
        return {"label": x.fill(only, scalar=True), "distances": distances}
    pairs = np.concatenate(walk.pairs)
    nearness = x.linear(-2 * pairs, _squared_lengths(pairs))
    even, odd = np.arange(0, len(pairs), 2), np.arange(1, len(pairs), 2)
    further = nearness.select(even) - nearness.select(odd)
    leaf = further.descend(walk.left, walk.right)
    return {"label": leaf.take(_numbers(len(fit.cluster_centers_))), "distances": distances}


def _bisect(node: Fitted, mean: NDArray[Any] | None, walk: _Bisection) -> int:
    """Append a node and those below it to the walk; its number, or -1 - label for a leaf."""
    if node.left is None:
        return -1 - int(node.label)
    number = len(walk.pairs)
    centres = np.vstack((node.left.center, node.right.center))
    if mean is not None:
        centres += mean
    walk.pairs.append(centres)
    walk.left.append(0)
    walk.right.append(0)
    walk.left[number] = _bisect(node.left, mean, walk)
    walk.right[number] = _bisect(node.right, mean, walk)
    return number


# --- the nearest of some points -------------------------------------------------------------------


def _nearest_centre(x: Flow, centres: NDArray[Any], to: Importer) -> Flow:
    """The number of the nearest centre; the choice is made in float64."""
    return to.floats(x).squared_distances(centres.astype(np.float64)).arg_min()


@adapts("sklearn.cluster.Birch")
def _birch(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    label = _nearest_centre(x, fit.subcluster_centers_, to).take(fit.subcluster_labels_)
    distances = to.floats(x).squared_distances(fit.subcluster_centers_).sqrt()
    return {"label": label, "distances": distances}


@adapts("sklearn.cluster.MeanShift")
def _mean_shift(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return {"label": _nearest_centre(x, fit.cluster_centers_, to)}


@adapts("sklearn.cluster.AffinityPropagation")
def _affinity(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    to.need(fit.affinity == "euclidean", "precomputed affinities cannot label new rows")
    centres = fit.cluster_centers_
    if not centres.shape[0]:
        return {"label": to.matrix(x).fill([-1], scalar=True)}
    dense = centres.toarray() if hasattr(centres, "toarray") else centres
    return {"label": _nearest_centre(x, dense, to)}


declines(
    "refused: it only labels the rows it was fitted on",
    *(
        f"sklearn.cluster.{name}"
        for name in (
            *("AgglomerativeClustering", "DBSCAN", "HDBSCAN", "OPTICS"),
            *("SpectralBiclustering", "SpectralClustering", "SpectralCoclustering"),
        )
    ),
)
