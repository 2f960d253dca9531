"""Piecewise linear maps along fitted grids, and the normal distribution's quantiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, fitted, is_float, vector
from flour.core.emission import Emitter, RowValue, ScalarValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.op import Array, Columns, Op
from flour.core.sparse import Sparse
from flour.core.types import Extent, Type, Vector
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.bases import FloatElementwise


class Ranks(Op):
    """The rank of each number among its column's quantiles, from 0 to 1.

    Between two quantiles the rank is interpolated from below and from above, and the mean
    counts (they differ where quantiles repeat). Numbers within `margin` of an end, or beyond it,
    get the rank 0 or 1. With `sparse`, zeros stay zeros.
    """

    quantiles: Array
    ranks: Array
    margin: float = 0.0
    sparse: bool = False
    largest_result = 1.0
    takes_sparse = True
    cuts = True
    monotone = True

    def check(self) -> None:
        shape = self.quantiles.shape
        if len(shape) != 2 or shape[1] < 1 or self.ranks.shape != (shape[1],):
            raise ParameterError("ranks needs a row of quantiles a column, and a rank for each")
        if {self.quantiles.dtype.name, self.ranks.dtype.name} != {"float64"}:
            raise ParameterError("quantiles and their ranks are float64")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "ranks")
        fitted(self.quantiles.shape[0], kind, "ranks")
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

    def structure(self) -> tuple[object, ...]:
        return (self.margin > 0, self.sparse)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        count = e.size(self.quantiles.shape[1])
        margin = e.number(self.margin, x.dtype)

        def rank(j: str, v: str) -> str:
            value = e.let(v, x.dtype).expr
            result = e.var(f"{x.dtype}({value})")
            skip = f"{value} == {value}" + (f" and {value} != 0" if self.sparse else "")
            with e.block(f"if {skip}:"):
                self._inside(e, (j, value, result, margin, count), x.dtype)
            return result

        return e.map(rank, x, dtype=x.dtype, width=x.width, keeps_zero=self.sparse)

    def _inside(self, e: Emitter, names: tuple[str, str, str, str, str], dtype: str) -> None:
        j, value, result, margin, count = names
        grid = e.let(f"{e.address(self.quantiles)} + 8 * {j} * {count}", "int64").expr
        first, last = (
            e.let(f"ldc_float64({grid}, {at})", "float64").expr for at in ("0", f"{count} - 1")
        )
        low, high = f"{value} <= {first}", f"{value} >= {last}"
        if self.margin:
            low, high = f"{value} - {margin} < {first}", f"{value} + {margin} > {last}"
        with e.block(f"if {low}:"):
            e.line(f"{result} = {dtype}(0)")
        with e.block("else:"):
            with e.block(f"if {high}:"):
                e.line(f"{result} = {dtype}({self._top(e, value, last, count)})")
            with e.block("else:"):
                mean = self._between(e, f"float64({value})", grid, count)
                e.line(f"{result} = {e.cast(mean, 'float64', dtype)}")

    def _top(self, e: Emitter, value: str, last: str, count: str) -> str:
        """The rank at and above the last quantile: 1, unless it is the only quantile."""
        if self.margin:
            return "1"
        end = e.load(e.address(self.ranks), f"{count} - 1", "float64", constant=True)
        return f"1.0 if {value} == {last} else {end}"

    def _between(self, e: Emitter, value: str, grid: str, count: str) -> str:
        """The mean of the ranks interpolated from below and from above."""
        ranks = e.address(self.ranks)
        x = e.let(value, "float64").expr
        below = _last(e, grid, count, f"{{}} <= {x}")
        above = e.var(f"min({_last(e, grid, count, f'{{}} < {x}')} + 1, {count} - 1)")
        g, r = _loader(e, grid), _loader(e, ranks)
        up = e.var(r(below))
        with e.block(f"if {g(below)} != {x}:"):
            after = f"min({below} + 1, {count} - 1)"
            slope = f"({r(after)} - {r(below)}) / ({g(after)} - {g(below)})"
            e.line(f"{up} = {slope} * ({x} - {g(below)}) + {r(below)}")
        down = e.var(f"-{r(above)}")
        with e.block(f"if {g(above)} != {x}:"):
            before = f"max({above} - 1, 0)"
            slope = f"(-{r(before)} + {r(above)}) / (-{g(before)} + {g(above)})"
            e.line(f"{down} = {slope} * (-{x} + {g(above)}) + -{r(above)}")
        return f"(0.5 * ({up} - {down}))"


def _loader(e: Emitter, base: str) -> Callable[[str], str]:
    return lambda index: e.load(base, index, "float64", constant=True)


def _last(e: Emitter, grid: str, count: str, holds: str) -> str:
    """Emit a search for the last place of a grid where a condition holds that fails later on.

    The first place is not tested; it is the answer where the condition fails at all others, as it
    does for NaN.
    """
    low, high = e.var("0", "lo"), e.var(count, "hi")
    with e.block(f"while {high} - {low} > 1:"):
        middle = e.let(f"({low} + {high}) >> 1", "int64").expr
        with e.block(f"if {holds.format(_loader(e, grid)(middle))}:"):
            e.line(f"{low} = {middle}")
        with e.block("else:"):
            e.line(f"{high} = {middle}")
    return low


_SPARSE = "import with sample= a few sparse rows"


class NormalQuantile(FloatElementwise):
    """The number that a standard normal variable stays below with probability x."""

    monotone = True

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

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        p = e.let(e.cast(x.expr, x.dtype, "float64"), "float64").expr
        q = e.let(f"{p} - 0.5", "float64").expr
        quantile = e.var(f"{q} * 0.0")
        with e.block(f"if abs({q}) <= 0.425:"):
            r = e.let(f"0.180625 - {q} * {q}", "float64").expr
            e.line(f"{quantile} = {q} * {_ratio_text(_MIDDLE, r)}")
        with e.block("else:"):
            r = e.var(f"sqrt(-log({p} if {q} <= 0.0 else 1.0 - {p}))")
            with e.block(f"if {r} <= 5.0:"):
                e.line(f"{r} = {r} - 1.6")
                e.line(f"{quantile} = {_ratio_text(_SIDE, r)}")
            with e.block("else:"):
                far = e.let(f"{r} - 5.0", "float64").expr
                # At 0 and 1 the ratio is infinity over infinity; the answer is infinity itself.
                e.line(f"{quantile} = {_ratio_text(_TAIL, far)} if {r} < 1e300 else {r}")
            with e.block(f"if {q} < 0.0:"):
                e.line(f"{quantile} = -{quantile}")
        return e.cast(quantile, "float64", x.dtype)


Ratio = tuple[tuple[float, ...], tuple[float, ...]]


def _ratio(coefficients: Ratio, r: NDArray[Any]) -> Any:
    """Two polynomials of r over one another."""
    above, below = (np.polyval(np.array(side), r) for side in coefficients)
    return above / below


def _ratio_text(coefficients: Ratio, r: str) -> str:
    """The same as an expression."""
    above, below = (_horner(side, r) for side in coefficients)
    return f"({above} / {below})"


def _horner(coefficients: tuple[float, ...], r: str) -> str:
    expr = repr(coefficients[0])
    for number in coefficients[1:]:
        expr = f"({expr} * {r} + {number!r})"
    return expr


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
