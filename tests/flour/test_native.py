"""Native functions are plain Python: on arrays they compute what an operator's reference says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import flour
import oven
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.native import held, write
from flour.core.op import Columns, Op
from flour.core.types import Type, Vector
from flour.core.words import Row, registers, scratch, size, stored
from flour.ops import (
    bayes,
    cluster,
    distance,
    kernel,
    linear,
    manifold,
    mixture,
    nearest,
    projection,
    pursuit,
    segments,
    svm,
    vote,
)

_RNG = np.random.default_rng(20181009)
ROWS = _RNG.normal(size=(7, 6))
SPREAD = np.abs(_RNG.normal(size=(3, 6))) + 0.1
POINTS = _RNG.normal(size=(3, 6))
PLACES = _RNG.integers(-1, 4, size=(7, 4))
WEIGHTS = _RNG.normal(size=6)


def _gram() -> NDArray[Any]:
    atoms = _RNG.normal(size=(6, 9))
    return atoms @ atoms.T


GRAM = _gram()
LOWER = np.tril(GRAM) + 5 * np.eye(6)

#: An operator, and its native function for one row.
CASES: list[tuple[Op, Callable[[NDArray[Any]], Any]]] = [
    (
        linear.Linear(POINTS, [1.0, 2.0, 3.0]),
        lambda x: linear.summed_in_registers(x, POINTS.T.reshape(-1), [1.0, 2.0, 3.0], (0, 1, 2)),
    ),
    (
        linear.Linear(POINTS, []),
        lambda x: linear.summed_in_memory(x, POINTS.T.reshape(-1), None, 3),
    ),
    *(
        (
            distance.Distances(POINTS, name, p=3.0, weights=SPREAD[0]),
            lambda x, name=name: distance.distances(
                x, POINTS.T.reshape(-1), SPREAD[0], distance.METRICS[name], (3, 6), 3.0
            ),
        )
        for name in distance.METRICS
    ),
    (
        distance.SquaredDistances(POINTS),
        lambda x: distance.squared_distances(
            x, POINTS.T.reshape(-1), (POINTS**2).sum(axis=1), 3, "float64"
        ),
    ),
    (
        bayes.SpreadDistances(POINTS, SPREAD),
        lambda x: bayes.spread_distances(x, POINTS.reshape(-1), SPREAD.reshape(-1), 3),
    ),
    (mixture.SumRuns(2), lambda x: mixture.sums_of_runs(x, 2, 3)),
    (
        cluster.Descend([1, -1, -2, -3, -4, -5], [2, 3, 4, 5, -6, -7]),
        lambda x: cluster.leaf(x, [1, -1, -2, -3, -4, -5], [2, 3, 4, 5, -6, -7]),
    ),
    (vote.Share(), lambda x: vote.shares(x, 6)),
    (vote.WeightedMedian(SPREAD[0]), lambda x: vote.median(x, SPREAD[0], 6)),
    (nearest.Nearest(3), lambda x: nearest.nearest(x, 3)[0]),
    (nearest.Nearest(3, heap=True), lambda x: nearest.nearest_by_heap(x, 3)[0]),
    (nearest.Closeness(), lambda x: nearest.closeness(x, None, 6)),
    (kernel.SolveLower(LOWER), lambda x: kernel.solved(x, LOWER, 6)[0]),
    (
        pursuit.MatchingPursuit(GRAM, 3),
        lambda x: pursuit.pursued(x, 6, GRAM, 3, float(np.finfo(float).eps))[0],
    ),
    (segments.TopPlaces(3, 2), lambda x: segments.top_places(x, 3, 2, 2, smallest=False)),
    (
        segments.RunningSum(3, backwards=True),
        lambda x: segments.running_sums(x, 3, 2, without_own=False, backwards=True)[0],
    ),
    (
        segments.SegmentMax(3),
        lambda x: segments.of_runs(x, 3, 2, "float64", segments.SegmentMax.native, np.maximum)[0],
    ),
    (svm.CouplePairs(4), lambda x: svm.coupled(x, 4, 100, 0.005 / 4)[0]),
]


@pytest.mark.parametrize(("op", "function"), CASES, ids=lambda each: getattr(each, "name", ""))
def test_in_python_a_native_function_computes_what_the_reference_says(
    op: Op, function: Callable[[NDArray[Any]], Any]
) -> None:
    rows = np.abs(ROWS) / (1 + np.abs(ROWS)) if isinstance(op, svm.CouplePairs) else ROWS
    expected = op.reference(rows)
    computed = np.stack([np.asarray(function(row)) for row in rows])
    np.testing.assert_allclose(computed.reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


def test_functions_of_two_rows() -> None:
    table = _RNG.normal(size=(4, 5))
    both = zip(ROWS, ROWS[::-1], strict=True)
    spectra = projection.CircularConvolve().reference(ROWS, ROWS[::-1])
    ours = [projection.convolution(x, y, "float64") for x, y in both]
    np.testing.assert_allclose(ours, spectra, atol=1e-12)
    op = nearest.WeightedRows(table)
    rows = [
        nearest.added_rows(p, w, table.reshape(-1), 4, 5)[0]
        for p, w in zip(PLACES, ROWS[:, :4], strict=True)
    ]
    np.testing.assert_allclose(rows, op.reference(PLACES, ROWS[:, :4]))
    way = manifold.ShortestWay(table)
    ways = [
        manifold.shortest(p, w, table.reshape(-1), 4, 5, "float64")[0]
        for p, w in zip(PLACES, ROWS[:, :4], strict=True)
    ]
    np.testing.assert_array_equal(ways, way.reference(PLACES, ROWS[:, :4]))


# --- what the language means ----------------------------------------------------------------------


def _counted(limit: int) -> int:
    """A parameter that changes: the caller's is left alone."""
    count = 0
    while limit > 0:
        limit = limit - 2
        count = count + 1
    return count


def _every_construct(x: Row, width: int) -> Any:
    """Loops, comprehensions with names of their own, registers, a parameter that changes."""
    count, out = size(width), scratch("float64", width)
    sums = registers("float64", 2)
    for _, v in stored(x):
        sums[0] += v
        sums[1] = sums[1] + v * v
    limit = len(x)
    steps = _counted(limit)
    j = 3
    doubled = [2.0 * x[j] for j in range(len(x))]
    for o in range(count):
        value, other = doubled[o], sums[0] if o == 0 else sums[1]
        out[o] = value + other + limit + steps + j
    for k, scale in zip((0, 1), (0.5, 0.25), strict=True):
        out[k] *= scale
    return out, width, count


class Constructs(Op):
    """An operator of a test."""

    method = ""

    def infer(self, x: Type) -> Vector:
        assert isinstance(x, Vector)
        return x

    def reference(self, x: Columns) -> Columns:
        return np.stack([_every_construct(row, x.shape[1])[0] for row in x])

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return held(e, *write(e, _every_construct, x, x.width))


def test_in_a_stage_a_function_means_what_it_means_in_python() -> None:
    x = flour.vector("x", 6)
    plan = oven.bake(flour.outputs(y=Constructs()(x)), exact=True)
    np.testing.assert_array_equal(plan.run(ROWS)["y"], Constructs().reference(ROWS))


def _swapped(x: Row) -> Any:
    left, right = 1, 2
    left, right = right, left
    return x[left] + right


def test_names_that_depend_on_each_other_are_not_assigned_at_once() -> None:
    class Swap(Constructs):
        """An operator of a test."""

        method = ""

        def emit(self, e: Emitter, x: VectorValue) -> RowValue:
            return e.let(write(e, _swapped, x), x.dtype)

    with pytest.raises(AssertionError, match="left"):
        oven.bake(flour.outputs(y=Swap()(flour.vector("x", 6))))
