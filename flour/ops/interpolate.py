"""Piecewise linear maps along fitted grids or curves, and the normal distribution's quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import isnan, log, sqrt
from numpy.typing import NDArray

from flour.core import words
from flour.core.check import expect, is_float, numeric, vector
from flour.core.emission import Emitter, RowValue, ScalarValue
from flour.core.errors import ParameterError
from flour.core.native import Code, FittedNumbers, expression
from flour.core.op import Array, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import Extent, Type, Vector
from flour.core.words import Number, Numbers, behind, cast, like
from flour.core.words import fitted as fitted_numbers
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.bases import FloatElementwise


class Ranks(Op, largest_result=1.0, takes_sparse=True, cuts=True, monotone=True):
    """The rank of each number among its column's quantiles, from 0 to 1.

    Between two quantiles the rank is interpolated from below and from above, and the mean
    counts (they differ where quantiles repeat). Numbers within `margin` of an end, or beyond it,
    get the rank 0 or 1. With `sparse`, zeros stay zeros.
    """

    quantiles: Array
    ranks: Array
    margin: float = 0.0
    sparse: bool = False

    def check(self) -> None:
        shape = self.quantiles.shape
        if len(shape) != 2 or shape[1] < 1 or self.ranks.shape != (shape[1],):
            raise ParameterError("ranks needs a row of quantiles a column, and a rank for each")
        if {self.quantiles.dtype.name, self.ranks.dtype.name} != {"float64"}:
            raise ParameterError("quantiles and their ranks are float64")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "ranks", self.quantiles.shape[0])
        expect(is_float(kind), f"ranks computes on floats, got {kind}", "call as_float() first")
        expect(self.sparse or not kind.sparse, "dense and sparse data have other ranks", _SPARSE)
        return kind

    def reference(self, x: Columns) -> Columns:
        if isinstance(x, Sparse):
            ranks = np.empty_like(x.data)
            for j in range(x.shape[1]):
                ranks[x.indices == j] = self._column(x.data[x.indices == j], j)
            return x.with_data(ranks)
        return np.stack([self._column(x[:, j], j) for j in range(x.shape[1])], axis=1).reshape(
            x.shape
        )

    def _column(self, x: NDArray[Any], j: int) -> NDArray[Any]:
        grid: Any = self.quantiles.array[j]
        ranks: Any = self.ranks.array
        rising = np.interp(x, grid, ranks)
        result = (0.5 * (rising - np.interp(-x, -grid[::-1], -ranks[::-1]))).astype(x.dtype)
        if self.margin:
            margin = x.dtype.type(self.margin)
            high, low = x + margin > grid[-1], x - margin < grid[0]
        else:
            high, low = x == grid[-1], x <= grid[0]
        result[high] = 1
        result[low] = 0
        result = np.where(np.isnan(x), x, result)
        return np.where(x == 0, x, result) if self.sparse else result

    def emit(self, e: Emitter, x: RowValue) -> RowValue:
        count = ScalarValue(e.size(self.quantiles.shape[1]), "int64")
        margin = ScalarValue(e.number(self.margin, x.dtype), x.dtype)
        how = self.quantiles, self.ranks, count, margin if self.margin else None

        def ranked(j: str, v: str) -> str:
            return expression(e, rank, Code(v, x.dtype), Code(j), *how, sparse=self.sparse)

        return e.map(ranked, x, dtype=x.dtype, keeps_zero=self.sparse)


def rank(
    x: Number,
    j: int,
    quantiles: Numbers,
    ranks: Numbers,
    count: int,
    margin: Number | None,
    *,
    sparse: bool,
) -> Number:
    """The rank of a number of a column."""
    result = like(x, x)
    if not isnan(x) and (not sparse or x != 0):
        grid = behind(fitted_numbers(quantiles), j * count)
        first, last = grid[0], grid[count - 1]
        if (x <= first) if margin is None else (x - margin < first):
            result = like(x, 0)
        elif (x >= last) if margin is None else (x + margin > last):
            # 1, unless there is only one quantile.
            result = like(x, 1 if margin is not None or x == last else ranks[count - 1])
        else:
            mean = mean_rank(cast(x, "float64"), grid, fitted_numbers(ranks), count)
            result = cast(mean, x.dtype)
    return result


def mean_rank(x: Number, grid: Numbers, ranks: Numbers, count: int) -> Number:
    """The mean of the ranks interpolated from below and from above."""
    below = last_place(grid, count, x, np.less_equal)
    above = min(last_place(grid, count, x, np.less) + 1, count - 1)
    up = ranks[below]
    if grid[below] != x:
        after = min(below + 1, count - 1)
        slope = (ranks[after] - ranks[below]) / (grid[after] - grid[below])
        up = slope * (x - grid[below]) + ranks[below]
    down = -ranks[above]
    if grid[above] != x:
        before = max(above - 1, 0)
        fall = (-ranks[before] + ranks[above]) / (-grid[before] + grid[above])
        down = fall * (-x + grid[above]) + -ranks[above]
    return 0.5 * (up - down)


def last_place(
    grid: Numbers, count: int, x: Number, holds: Callable[[Number, Number], Number]
) -> int:
    """The last place of a grid where a comparison with x holds that fails later on.

    The first place is not tested; it is the answer where the comparison fails at all others, as it
    does for NaN.
    """
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) >> 1
        if holds(grid[middle], x):
            low = middle
        else:
            high = middle
    return low


_SPARSE = "import with sample= a few sparse rows"


class NormalQuantile(FloatElementwise, monotone=True):
    """The number that a standard normal variable stays below with probability x."""

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        return Extent(inputs[0].nan or inputs[0].largest > 1)

    def compute(self, x: NDArray[Any]) -> Any:
        p = x.astype(np.float64)
        q = p - 0.5
        middle = q * _ratio(_MIDDLE, 0.180625 - q * q)
        r = np.sqrt(-np.log(np.where(q <= 0, p, 1 - p)))
        outer = np.where(r <= 5, _ratio(_SIDE, r - 1.6), _ratio(_TAIL, r - 5))
        quantile = np.where(np.abs(q) <= 0.425, middle, np.copysign(outer, q))
        quantile = np.where((p == 0) | (p == 1), np.copysign(np.inf, q), quantile)
        return np.where((p < 0) | (p > 1) | np.isnan(p), np.nan, quantile).astype(x.dtype)

    @staticmethod
    def native(x: Number) -> Number:
        p = cast(x, "float64")
        q = p - 0.5
        result = q * 0.0
        if abs(q) <= 0.425:
            result = q * _ratio(_MIDDLE, 0.180625 - q * q)
        else:
            r = sqrt(-log(p if q <= 0.0 else 1.0 - p))
            if r <= 5.0:
                r = r - 1.6
                result = _ratio(_SIDE, r)
            else:
                # At 0 and 1 the ratio is infinity over infinity; the answer is infinity itself.
                result = _ratio(_TAIL, r - 5.0) if r < 1e300 else r
            if q < 0.0:
                result = -result
        return cast(result, x.dtype)


Ratio = tuple[tuple[float, ...], tuple[float, ...]]


def _ratio(coefficients: Ratio, r: Number) -> Number:
    """Two polynomials of r over one another."""
    return _polynomial(coefficients[0], r) / _polynomial(coefficients[1], r)


def _polynomial(coefficients: tuple[float, ...], r: Number) -> Number:
    """A polynomial, the coefficient of the highest power first."""
    if len(coefficients) == 1:
        return coefficients[0]
    return _polynomial(coefficients[:-1], r) * r + coefficients[-1]


# The rational approximations of algorithm AS 241 (Wichura, 1988), highest power first: numerator
# and denominator in the middle, at the sides and in the tails. Relative error about 1e-16.
_MIDDLE = (
    (
        *(2509.0809287301227, 33430.57558358813, 67265.7709270087, 45921.95393154987),
        *(13731.69376550946, 1971.5909503065513, 133.14166789178438, 3.3871328727963665),
    ),
    (
        *(5226.495278852854, 28729.085735721943, 39307.89580009271, 21213.794301586597),
        *(5394.196021424751, 687.1870074920579, 42.31333070160091, 1.0),
    ),
)
_SIDE = (
    (
        *(0.0007745450142783414, 0.022723844989269184, 0.2417807251774506, 1.2704582524523684),
        *(3.6478483247632045, 5.769497221460691, 4.630337846156546, 1.4234371107496835),
    ),
    (
        *(1.0507500716444169e-09, 0.0005475938084995345, 0.015198666563616457, 0.14810397642748008),
        *(0.6897673349851, 1.6763848301838038, 2.053191626637759, 1.0),
    ),
)
_TAIL = (
    (
        *(
            2.0103343992922881e-07,
            2.7115555687434876e-05,
            0.0012426609473880784,
            0.026532189526576124,
        ),
        *(0.29656057182850487, 1.7848265399172913, 5.463784911164114, 6.657904643501103),
    ),
    (
        *(
            2.0442631033899397e-15,
            1.421511758316446e-07,
            1.8463183175100548e-05,
            0.0007868691311456133,
        ),
        *(0.014875361290850615, 0.1369298809227358, 0.599832206555888, 1.0),
    ),
)


# --- adapters ---------------------------------------------------------------------------------


@adapts("sklearn.preprocessing.QuantileTransformer")
def _quantile_transformer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    normal = fit.output_distribution == "normal"
    x = to.floats(x)
    result = x.ranks(
        np.asarray(fit.quantiles_, np.float64).T,
        fit.references_,
        margin=_MARGIN if normal else 0.0,
        sparse=to.is_sparse(x),
    )
    if not normal:
        return result
    # The ranks 0 and 1 would be infinite: the library stops a little short of them.
    low, high = NormalQuantile().compute(np.array([_STOP, 1 - _STOP]))
    result = result.normal_quantile().clip([low], [high])
    if not to.is_sparse(x):
        return result
    # Sparse zeros are not numbers with a rank: they stay.
    return (result * x.not_equal([0.0]).cast_like(x)).to_sparse()


_MARGIN = 1e-7
_STOP = _MARGIN - np.spacing(1)


class Interpolate(FloatElementwise):
    """The height at x of the straight lines between (knots, heights); NaN outside them.

    Knots ascend. In float64 a number that is a knot gets exactly its height; in float32 it is
    reached along the line from the left (numpy interpolates float64, scipy the rest).
    """

    knots: Array
    heights: Array

    def cuts_behind(self, *sources: Op) -> bool:
        return sources[0].name != "Clip"  # only beyond the ends, where it answers NaN

    def check(self) -> None:
        knots: Any = self.knots.array
        if knots.ndim != 1 or len(knots) < 2 or self.heights.shape != knots.shape:
            raise ParameterError("two knots or more are needed, and a height for each")
        if not np.all(knots[1:] > knots[:-1]):
            raise ParameterError("knots must ascend")

    def infer(self, x: Type) -> Type:
        return self.output(numeric(x, "interpolate"))

    def _exact(self, dtype: str) -> bool:
        return dtype == "float64"

    def compute(self, x: NDArray[Any]) -> Any:
        knots, heights = (side.array.astype(x.dtype) for side in (self.knots, self.heights))
        inside = (x >= knots[0]) & (x <= knots[-1])
        if self._exact(x.dtype.name):
            return np.where(inside, np.interp(x, knots, heights), np.nan)
        high = np.searchsorted(knots, x).clip(1, len(knots) - 1)
        low = high - 1
        slope = (heights[high] - heights[low]) / (knots[high] - knots[low])
        return np.where(inside, slope * (x - knots[low]) + heights[low], x.dtype.type(np.nan))

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        end = ScalarValue(e.size(len(self.knots) - 1), "int64")
        knots, heights = FittedNumbers(self.knots, x.dtype), FittedNumbers(self.heights, x.dtype)
        return expression(e, height, x, knots, heights, end, exact=self._exact(x.dtype))


def height(
    x: Number, knots: words.Numbers, heights: words.Numbers, end: int, *, exact: bool
) -> Number:
    """The height of the lines at x."""
    result = like(x, math.nan)
    if x >= knots[0] and x <= knots[end]:
        low = last_place(knots, end, x, np.less_equal if exact else np.less)
        high = low + 1
        rise = (heights[high] - heights[low]) / (knots[high] - knots[low])
        result = rise * (x - knots[low]) + heights[low]
        if exact:
            for index in (low, high):
                if x == knots[index]:
                    result = heights[index]
    return result


@adapts("sklearn.isotonic.IsotonicRegression")
def _isotonic(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    to.need(
        fit.out_of_bounds != "raise",
        "out_of_bounds='raise' stops the library at rows outside the range it was fitted on",
        "use out_of_bounds='clip' or 'nan'",
    )
    value = isotonic(fit, to.matrix(x).cast(str(fit.X_thresholds_.dtype.name)).element(0))
    return {"value": value, "features": value}


def isotonic(fit: Fitted, x: Flow) -> Flow:
    """The fitted curve at x, which is a number in the dtype of its knots."""
    if len(fit.X_thresholds_) == 1:
        return x.fill(fit.y_thresholds_.astype(fit.X_thresholds_.dtype), scalar=True)
    if fit.out_of_bounds == "clip":
        x = x.clip(fit.X_min_, fit.X_max_)
    return x.interpolate(fit.X_thresholds_, fit.y_thresholds_)
