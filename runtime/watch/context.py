"""Two-sample tests, plain and given a context: whether rows changed more than their context did.

More calls from one country move every column that goes with the country, though nothing that the
model learnt is wrong. After Cobb and Van Looveren (2022), the test given a context compares what is
expected of the rows in equal contexts, and draws which rows belong to the window by the chance
that a row of its context does, so that a change of context alone is what the draws have as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import ParameterError
from runtime.watch.rows import Table

#: Features of rows and of contexts: kernels at so many landmarks, which are rows themselves.
_OF_ROWS, _OF_CONTEXT = 100, 40
#: Words of a column that are told apart, and Newton's steps for the chances.
_WORDS, _STEPS = 50, 12
#: How strongly regressions on the context are shrunk, by row, and the chances' weights in all.
_SHRUNK, _HELD = 1e-3, 1.0

Matrix = NDArray[np.float64]
Rows = Mapping[str, Any] | Sequence[Any] | NDArray[Any]  # frames, too


class Tested(NamedTuple):
    """A test's result: the statistic, and the chance of one as large if nothing has changed."""

    statistic: float
    p_value: float


def two_sample_test(
    reference: Rows, window: Rows, permutations: int = 100, seed: int = 0
) -> Tested:
    """True if window and reference differ at all: the maximum mean discrepancy of their rows."""
    rng = np.random.default_rng(seed)
    rows, is_window = _joined(reference, window, "rows")
    features = _features(rows, _OF_ROWS, rng)

    def statistic(chosen: NDArray[np.bool_]) -> float:
        away = features[chosen].mean(0) - features[~chosen].mean(0)
        return float(away @ away)

    drawn = [statistic(rng.permutation(is_window)) for _ in range(permutations)]
    return _tested(statistic(is_window), drawn)


def context_test(
    reference: Rows,
    context_of_reference: Rows,
    window: Rows,
    context_of_window: Rows,
    permutations: int = 100,
    seed: int = 0,
) -> Tested:
    """True if rows differ in equal contexts, in contexts that both reference and window have.

    All are arrays with a row for each row, or columns by name, of numbers or words. A few hundred
    rows of each are enough; the time is that of `permutations` regressions on the context.
    """
    rng = np.random.default_rng(seed)
    rows, is_window = _joined(reference, window, "rows")
    contexts, same = _joined(context_of_reference, context_of_window, "contexts")
    if not np.array_equal(is_window, same):
        raise ParameterError(
            "each row has a context",
            found=f"{len(rows)} rows and {len(contexts)} contexts",
            hint="pass the context columns of the same rows",
        )
    given = _features(contexts, _OF_CONTEXT, rng)
    given = np.hstack([np.ones((len(given), 1)), given])
    chances = _chances(given, is_window)
    if chances[~is_window].max() < chances[is_window].min():
        return Tested(0.0, 1.0)  # no context is on both sides, so there is nothing to compare
    overlap = chances * (1 - chances)
    features = _features(rows, _OF_ROWS, rng)
    features -= given @ _regression(given, features)  # what the context explains in both alike
    weighed = given.T @ (overlap[:, None] / overlap.sum() * given)

    def statistic(chosen: NDArray[np.bool_]) -> float:
        new = _regression(given[chosen], features[chosen])
        away = new - _regression(given[~chosen], features[~chosen])
        return float(np.vdot(away, weighed @ away))

    drawn = [statistic(_drawn(chances, rng)) for _ in range(permutations)]
    return _tested(statistic(is_window), drawn)


def _tested(found: float, drawn: list[float]) -> Tested:
    return Tested(found, (1 + sum(each >= found for each in drawn)) / (1 + len(drawn)))


def _drawn(chances: Matrix, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw the rows of the window by their chances; both sides have two rows or more."""
    chosen = rng.random(len(chances)) < chances
    order = np.argsort(chances)
    chosen[order[:2]], chosen[order[-2:]] = False, True
    return chosen


def _joined(reference: Rows, window: Rows, what: str) -> tuple[Matrix, NDArray[np.bool_]]:
    """The rows of both as numbers, and which are the window's."""
    tables = [_table(each) for each in (reference, window)]
    names = [name for name in tables[0] if name in tables[1]]
    sizes = [len(next(iter(each.values()), ())) for each in tables]
    if not names or min(sizes) < 4:
        raise ParameterError(
            f"a test compares {what} of the same columns, four or more on each side",
            found=f"{sizes[0]} and {sizes[1]}, columns in both: {', '.join(names)[:100] or 'none'}",
        )
    parts = [_numbers([table[name] for table in tables]) for name in names]
    return np.hstack(parts), np.arange(sum(sizes)) >= sizes[0]


def _table(rows: Rows) -> Table:
    names = rows if isinstance(rows, Mapping) else getattr(rows, "columns", None)
    if names is not None:
        named: Any = rows
        return {str(name): np.asarray(named[name]).reshape(-1) for name in names}
    flat = np.asarray(rows)
    if not flat.ndim or (flat.size and isinstance(flat.flat[0], dict)):
        raise ParameterError(
            "rows of a test are columns by name, or an array with a row for each row",
            found=repr(rows)[:80],
            hint='{"age": ages}',
        )
    columns = flat.reshape(len(flat), -1).T
    return {str(place): column for place, column in enumerate(columns)}


def _numbers(parts: list[NDArray[Any]]) -> Matrix:
    """A column as numbers of spread 1; a word is a number for each of the frequent words."""
    if any(part.dtype.kind not in "biuf" for part in parts):
        words = np.concatenate([part.astype(str) for part in parts])
        kinds, counts = np.unique(words, return_counts=True)
        kinds = kinds[np.argsort(-counts, kind="stable")[:_WORDS]]
        return np.asarray(words[:, None] == kinds, np.float64)
    values = np.concatenate(parts).astype(np.float64)
    known = np.isfinite(values)
    middle = float(np.median(values[known])) if known.any() else 0.0
    values = np.where(known, values - middle, 0.0)
    spread = float(values.std()) or 1.0
    return np.column_stack([values / spread, ~known])


def _features(rows: Matrix, most: int, rng: np.random.Generator) -> Matrix:
    """Gaussian kernels at landmarks, made orthogonal: products of features are near the kernel.

    The kernel's width is the median distance of rows, as is usual.
    """
    places = rng.permutation(len(rows))[: min(most, len(rows))]
    marks = np.unique(rows[places], axis=0)
    squares = _squares(rows, marks)
    apart = squares[squares > 1e-12]
    width = float(np.median(apart)) if len(apart) else 1.0
    kernel = np.exp(-squares / width)
    values, vectors = np.linalg.eigh(np.exp(-_squares(marks, marks) / width))
    kept = values > 1e-6 * values[-1]
    found: Matrix = kernel @ (vectors[:, kept] / np.sqrt(values[kept]))
    return found


def _squares(rows: Matrix, marks: Matrix) -> Matrix:
    """Squared distances of rows from landmarks."""
    sums = (rows**2).sum(1)[:, None] + (marks**2).sum(1) - 2 * rows @ marks.T
    found: Matrix = np.maximum(sums, 0.0)
    return found


def _regression(given: Matrix, wanted: Matrix) -> Matrix:
    """The weights of a ridge regression."""
    inner = given.T @ given
    inner[np.diag_indices_from(inner)] += _SHRUNK * len(given)
    return np.asarray(np.linalg.solve(inner, given.T @ wanted), np.float64)


def _chances(given: Matrix, is_window: NDArray[np.bool_]) -> Matrix:
    """The chance that a row of this context is the window's: a logistic regression by Newton."""
    weights = np.zeros(given.shape[1])
    held = np.full(given.shape[1], _HELD)
    held[0] = 1e-6  # the share of the window is not shrunk
    for _ in range(_STEPS):
        chances = 1 / (1 + np.exp(-np.clip(given @ weights, -30, 30)))
        slope = given.T @ (is_window - chances) - held * weights
        curve = (given * (chances * (1 - chances))[:, None]).T @ given + np.diag(held)
        weights += np.linalg.solve(curve, slope)
    found: Matrix = 1 / (1 + np.exp(-np.clip(given @ weights, -30, 30)))
    return found
