"""Columns as the values of piecewise polynomials, B-splines, and products of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import InputError, ParameterError
from flour.core.native import write
from flour.core.op import Arity, Array, Columns, Op
from flour.core.raw_columns import Made
from flour.core.types import Type, Vector
from flour.core.words import Row, indexable, one, scratch, size
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow

CONSTANT, LINEAR, CONTINUE, PERIODIC, ERROR = MODES = (
    "constant",
    "linear",
    "continue",
    "periodic",
    "error",
)


class Splines(Op, cuts=True, arity=Arity.ONE_TO_MANY):
    """The B-splines of each column over its knots, as many as `ends` has; NaN gives zeros.

    `knots` has a row for each column. Beyond a column's `bounds` the splines go on as `beyond`
    says: constant or linear from the ends (whose values and slopes are ends[column] = (low, low
    slope, high, high slope)), by their polynomials, periodically, or not at all. Only the first
    `keep` splines of a column are kept.
    """

    knots: Array
    bounds: Array
    ends: Array
    degree: int
    beyond: str
    keep: int

    def made_of(self, width: int, made: Sequence[Made], kinds: Sequence[Type]) -> Made:
        return np.repeat(made[0], self.keep)

    def check(self) -> None:
        knots, ends = self.knots.shape, self.ends.shape
        fine = len(knots) == 2 and len(ends) == 3 and ends[:2] == (knots[0], 4)
        kinds = {item.dtype.name for item in (self.knots, self.bounds, self.ends)}
        if not fine or self.bounds.shape != (knots[0], 2) or kinds != {"float64"}:
            raise ParameterError("splines need knots, two bounds and four rows of ends a column")
        splines, basis = ends[2], knots[1] - self.degree - 1
        if self.degree < 0 or basis <= self.degree or self.beyond not in MODES:
            raise ParameterError(f"splines of degree {self.degree} {self.beyond} have other knots")
        wraps = self.degree if self.beyond == PERIODIC else 0
        if splines != basis - wraps or not 0 <= self.keep <= splines:
            raise ParameterError(f"{basis} polynomials do not make {splines} splines")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "splines", self.knots.shape[0])
        expect(is_float(kind), f"splines compute on floats, got {kind}", "call as_float() first")
        return Vector(kind.width * self.keep, kind.dtype)

    # --- the definition ----------------------------------------------------------------------

    def reference(self, x: Columns) -> Columns:
        parts = [self._column(x[:, j].astype(np.float64), j) for j in range(x.shape[1])]
        parts.append(np.empty((len(x), 0)))
        return np.concatenate(parts, axis=1).astype(x.dtype)

    def _column(self, x: NDArray[Any], j: int) -> NDArray[Any]:
        t: Any = self.knots.array[j]
        low, high = self.bounds.array[j].tolist()
        present = x == x  # noqa: PLR0124 (the definition of NaN)
        if self.beyond == PERIODIC:
            x = low + (x - low) % (high - low) if high > low else np.zeros_like(x)
        within = (x >= low) & (x <= high)
        if self.beyond == ERROR:
            outside = present & ~within
            if outside.any():
                row = int(np.argmax(outside))
                raise InputError(
                    f"{float(x[row])} is beyond the knots of the splines",
                    where=f"row {row}, column {j} of the splines",
                    hint="train with another extrapolation than 'error' to serve such values",
                )
        inside = present if self.beyond in (PERIODIC, CONTINUE) else within
        splines = np.zeros((len(x), self.ends.shape[2]))
        splines[inside] = self._basis(x[inside], t)
        if self.beyond in (CONSTANT, LINEAR):
            bounds = (low, high)
            ends: Any = self.ends.array[j]
            for side, (bound, outside) in enumerate(
                ((bounds[0], x < bounds[0]), (bounds[1], x > bounds[1]))
            ):
                value, slope = ends[2 * side], ends[2 * side + 1]
                distance = (x[outside] - bound)[:, None]
                splines[outside] = value + distance * slope if self.beyond == LINEAR else value
        return splines[:, : self.keep]

    def _basis(self, x: NDArray[Any], t: NDArray[Any]) -> NDArray[Any]:
        """The polynomials of the interval x is in, each in its spline's column."""
        count = len(t) - self.degree - 1
        knot = np.full(len(x), self.degree)
        for k in range(self.degree + 1, count):
            knot[x >= t[k]] = k
        splines = np.zeros((len(x), self.ends.shape[2]))
        for a, value in enumerate(self._recursion(x, t, knot)):
            column = (knot - self.degree + a) % splines.shape[1]
            splines[np.arange(len(x)), column] += value
        return splines

    def _recursion(
        self, x: NDArray[Any], t: NDArray[Any], knot: NDArray[Any]
    ) -> list[NDArray[Any]]:
        """de Boor's recursion from degree 0 upwards."""
        h: list[NDArray[Any]] = [np.ones(len(x))]
        for j in range(1, self.degree + 1):
            before, h = h, [np.zeros(len(x)) for _ in range(j + 1)]
            for n in range(1, j + 1):
                above, below = t[knot + n], t[knot + n - j]
                flat = above == below
                w = np.where(flat, 0.0, before[n - 1] / np.where(flat, 1.0, above - below))
                h[n - 1] = np.where(flat, h[n - 1], h[n - 1] + w * (above - x))
                h[n] = np.where(flat, 0.0, w * (x - below))
        return h

    # --- native code -------------------------------------------------------------------------

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        at = e.indexable(x)
        width, keep = self.knots.shape[0] * self.keep, e.size(self.keep)
        out = e.scratch("float64", width)
        with e.loop(e.size(width)) as o:
            e.store(out, o, "0.0", "float64")
        code = _SplineCode(self, e, keep)
        with e.loop(x.size) as j:
            value = e.var(e.cast(at(j), x.dtype, "float64"))
            target = e.let(f"{out} + 8 * {j} * {keep}", "int64").expr
            with e.block(f"if {value} == {value}:"):
                code.column(j, value, target)
        return e.dense(
            x.dtype,
            width,
            lambda o: e.cast(e.load(out, o, "float64"), "float64", x.dtype),
            stored=True,
        )


class _SplineCode:
    """Writes the native code of the splines of one column."""

    def __init__(self, op: Splines, e: Emitter, keep: str) -> None:
        self.op, self.e, self.keep = op, e, keep
        self.knots, self.ends = e.address(op.knots), e.address(op.ends)
        self.bounds = e.address(op.bounds)
        self.count, self.degree = e.size(op.knots.shape[1]), e.size(op.degree)
        self.splines = e.size(op.ends.shape[2])
        self.now, self.before = (e.scratch("float64", op.degree + 1) for _ in range(2))

    def _float(self, expr: str) -> str:
        return self.e.let(expr, "float64").expr

    def _load(self, base: str) -> Callable[[str], str]:
        return lambda index: self.e.load(base, index, "float64", constant=True)

    def column(self, j: str, x: str, target: str) -> None:
        """All splines of column j at x, written to target."""
        e = self.e
        t = e.let(f"{self.knots} + 8 * {j} * {self.count}", "int64").expr
        low, high = (self._float(self._load(self.bounds)(f"2 * {j} + {side}")) for side in "01")
        if self.op.beyond == PERIODIC:
            turn = f"{low} + ({x} - {low}) % ({high} - {low})"
            e.line(f"{x} = {turn} if {high} > {low} else 0.0")
        if self.op.beyond in (PERIODIC, CONTINUE):
            self._basis(t, x, target)
            return
        with e.block(f"if {x} >= {low} and {x} <= {high}:"):
            self._basis(t, x, target)
        with e.block("else:"):
            if self.op.beyond == ERROR:
                e.line("return 1")
            else:
                self._outside(j, x, (low, high), target)

    def _outside(self, j: str, x: str, bounds: tuple[str, str], target: str) -> None:
        e = self.e
        side = e.let(f"0 if {x} < {bounds[0]} else 2", "int64").expr
        bound = self._float(f"{bounds[0]} if {side} == 0 else {bounds[1]}")
        start = f"{self.ends} + 8 * (4 * {j} + {side}) * {self.splines}"
        values = self._load(e.let(start, "int64").expr)
        with e.loop(self.keep) as o:
            value = values(o)
            if self.op.beyond == LINEAR:
                value = f"{value} + ({x} - {bound}) * {values(f'{self.splines} + {o}')}"
            e.store(target, o, value, "float64")

    def _basis(self, knots: str, x: str, target: str) -> None:
        """de Boor's recursion, as in the definition."""
        e, t, k = self.e, self._load(knots), self.degree
        knot = e.var(k)
        with e.block(f"while {knot} < {self.count} - {k} - 2 and {x} >= {t(f'{knot} + 1')}:"):
            e.line(f"{knot} += 1")
        e.store(self.now, "0", "1.0", "float64")
        with e.loop(f"{k} + 1", "1") as j:
            with e.loop(j) as n:
                e.store(self.before, n, e.load(self.now, n, "float64"), "float64")
            e.store(self.now, "0", "0.0", "float64")
            with e.loop(f"{j} + 1", "1") as n:
                above = self._float(t(f"{knot} + {n}"))
                below = self._float(t(f"{knot} + {n} - {j}"))
                e.store(self.now, n, "0.0", "float64")
                with e.block(f"if {above} != {below}:"):
                    last = f"{n} - 1"
                    old = e.load(self.before, last, "float64")
                    w = self._float(f"{old} / ({above} - {below})")
                    sum_ = f"{e.load(self.now, last, 'float64')} + {w} * ({above} - {x})"
                    e.store(self.now, last, sum_, "float64")
                    e.store(self.now, n, f"{w} * ({x} - {below})", "float64")
        with e.loop(f"{k} + 1") as a:
            column = e.let(f"({knot} - {k} + {a}) % {self.splines}", "int64").expr
            with e.block(f"if {column} < {self.keep}:"):
                value = f"{e.load(target, column, 'float64')} + {e.load(self.now, a, 'float64')}"
                e.store(target, column, value, "float64")


# --- adapters ---------------------------------------------------------------------------------


@adapts("sklearn.preprocessing.SplineTransformer")
def _spline_transformer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    batch = fit.sparse_output and fit.handle_missing == "zeros" and len(fit.bsplines_) > 1
    to.need(
        not batch or fit.extrapolation in (CONSTANT, LINEAR),
        "with these settings the library encodes a missing value by the other rows of its batch",
        "use sparse_output=False, or another extrapolation",
    )
    # A sparse result is computed in float64, a dense one in the width of the data.
    x = to.doubles(x) if fit.sparse_output else to.floats(x)
    count = fit.bsplines_[0].c.shape[1]
    bounds, ends = [], []
    for spline, (degree, reach) in zip(fit.bsplines_, _degrees(fit), strict=True):
        bounds.append((spline.t[degree], spline.t[-degree - 1]))
        ends.append(_ends(fit, spline, bounds[-1], reach))
    columns = x.splines(
        np.stack([spline.t for spline in fit.bsplines_]),
        np.array(bounds),
        np.stack(ends),
        fit.degree,
        fit.extrapolation,
        count if fit.include_bias else count - 1,
    )
    return columns.to_sparse() if fit.sparse_output else columns


def _degrees(fit: Fitted) -> Iterator[tuple[int, int]]:
    """For each column: which knots bound it, and how many splines of an end go on beyond it.

    Linear splines of degree 0 and 1 reach one further; the library raises its degree by one for
    that, and keeps it for the columns that follow.
    """
    degree = fit.degree
    for _ in fit.bsplines_:
        before = degree
        if fit.extrapolation == LINEAR and degree <= 1:
            degree += 1
        yield before, degree


def _ends(fit: Fitted, spline: Any, bounds: tuple[Any, Any], reach: int) -> Any:
    """Values and slopes at both bounds, of the splines that are not 0 there."""
    ends = np.zeros((4, spline.c.shape[1]))
    if fit.extrapolation in (CONSTANT, LINEAR):
        # In the library's words [:reach] and [-reach:], and -0 is the first of all.
        for side, span in ((0, slice(reach)), (1, slice(-reach, None))):
            ends[2 * side, span] = spline(bounds[side])[span]
            if fit.extrapolation == LINEAR:
                ends[2 * side + 1, span] = spline(bounds[side], nu=1)[span]
    return ends


class Products(Op, arity=Arity.ONE_TO_MANY):
    """The columns, then the product of terms left[i] and right[i] for each i; `skip` left out.

    Terms are numbered as they are made, the columns first, so that a cube is a square times a
    column. With `bias` a one comes ahead of the terms that are kept.
    """

    left: Array
    right: Array
    skip: int = 0
    bias: bool = False

    def check(self) -> None:
        left, right = self.left.array, self.right.array
        kinds = {left.dtype.name, right.dtype.name}
        if left.ndim != 1 or left.shape != right.shape or kinds != {"int64"} or self.skip < 0:
            raise ParameterError("products need as many left as right factors, by their numbers")
        if left.size and min(left.min(), right.min()) < 0:
            raise ParameterError("terms count from 0")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "products")
        expect(is_float(kind), f"products are of floats, got {kind}", "call as_float() first")
        term_numbers = kind.width + np.arange(len(self.left))
        for side in (self.left, self.right):
            expect(
                np.all(np.less(side.array, term_numbers)),
                "a product uses a term that is not there yet",
            )
        terms = kind.width + len(self.left)
        expect(self.skip <= terms, f"products skips {self.skip} of {terms} terms")
        return kind.having(width=terms - self.skip + self.bias)

    def reference(self, x: Columns) -> Columns:
        rows, width = x.shape
        terms = np.empty((rows, width + len(self.left)), x.dtype)
        terms[:, :width] = x
        sides = zip(self.left.array, self.right.array, strict=True)
        for number, (left, right) in enumerate(sides, width):
            terms[:, number] = terms[:, left] * terms[:, right]
        kept = terms[:, self.skip :]
        return np.hstack([np.ones((rows, 1), x.dtype), kept]) if self.bias else kept

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        terms = x.width + len(self.left)
        return e.dense(
            x.dtype,
            terms - self.skip + self.bias,
            write(e, products, x, self, terms, len(self.left)).write,
            stored=True,
        )


def products(x: Row, op: Any, terms: int, pairs: int) -> Any:
    """The columns and the products of terms, without those that are left out."""
    # A slot ahead of the terms holds the one of the bias where nothing is skipped.
    found = scratch(x.dtype, terms + 1)
    columns = indexable(x)
    for j in range(len(x)):
        found[1 + j] = columns[j]
    for i in range(size(pairs)):
        found[1 + len(x) + i] = found[1 + op.left[i]] * found[1 + op.right[i]]
    skip = size(op.skip)
    if op.bias:
        found[skip] = one(x)
    else:
        skip = 1 + skip
    return [found[skip + j] for j in range(terms - op.skip + op.bias)]


_MOST = 1 << 22


@adapts("sklearn.preprocessing.PolynomialFeatures")
def _polynomial_features(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(fit._n_out_full <= _MOST, f"{fit._n_out_full} polynomial terms are too many")
    left, right, low = _factors(fit)
    return to.floats(x).products(left, right, skip=low, bias=fit.include_bias)


def _factors(fit: Fitted) -> tuple[Any, Any, int]:
    """(left, right) of every term above degree 1, and the number of terms of too low a degree.

    The first column of a term multiplies the term of all the others, as the library builds them.
    """
    width = fit.n_features_in_
    number: dict[tuple[int, ...], int] = {(j,): j for j in range(width)}
    left: list[int] = []
    right: list[int] = []
    low = 0 if fit._min_degree <= 1 and fit._max_degree > 0 else width
    choose = combinations if fit.interaction_only else combinations_with_replacement
    for degree in range(2, fit._max_degree + 1):
        for term in choose(range(width), degree):
            number[term] = len(number)
            left.append(number[term[1:]])
            right.append(term[0])
        if degree < fit._min_degree:
            low = len(number)
    return np.array(left, np.int64), np.array(right, np.int64), low
