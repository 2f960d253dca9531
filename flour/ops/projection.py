"""Random projections, approximate kernel maps, learnt projections, pooled columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import log, sqrt
from numpy.typing import NDArray

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, ScalarValue, VectorValue
from flour.core.native import expression, listed, write
from flour.core.op import Arity, Bound, Columns, Op
from flour.core.types import Type, Vector, promote
from flour.core.words import Number, Row, added, cast, indexable, number, zero
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.language.sources import concat
from flour.ops.bases import FloatElementwise
from flour.ops.linear import affine, plain
from flour.ops.require import above
from flour.pickles.standins import Global


class ChiWave(FloatElementwise, takes_sparse=True, keeps_zero=True):
    """One component of the additive chi-squared kernel's feature map; zero stays zero.

    sqrt(x interval) for step 0, else sqrt(2 x interval / cosh(pi step interval)) times the cosine
    or sine of step * interval * log(x).
    """

    step: int
    interval: float
    sine: bool

    def compute(self, x: NDArray[Any]) -> Any:
        wave = np.zeros_like(x)
        nonzero = x != 0
        value = x[nonzero]
        if self.step == 0:
            wave[nonzero] = np.sqrt(value * self.interval)
            return wave
        angle = self.step * (self.interval * np.log(value))
        factor = np.sqrt(2 * value * self.interval / self._spread())
        wave[nonzero] = factor * (np.sin(angle) if self.sine else np.cos(angle))
        return wave

    def _spread(self) -> Any:
        return np.cosh(np.pi * self.step * self.interval)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        turn, spread = np.sin if self.sine else np.cos, float(self._spread())
        return expression(e, wave, x, self.interval, self.step, spread, turn)


def wave(
    x: Number, interval: float, step: int, spread: float, turn: Callable[[Number], Number]
) -> Number:
    """One component of the feature map."""
    between = number(interval, x.dtype)
    if step == 0:
        return sqrt(x * between)
    count, two, wide = number(step, x.dtype), number(2.0, x.dtype), number(spread, x.dtype)
    return zero(x) if x == 0 else sqrt(two * x * between / wide) * turn(count * (between * log(x)))


class CircularConvolve(Op, arity=Arity.AGGREGATE, bound=Bound.COMPUTE, commutative=True):
    """The circular convolution of two vectors: the inverse transform of the product of spectra."""

    def infer(self, x: Type, y: Type) -> Vector:
        left, right = vector(x, self.name), vector(y, self.name)
        expect(left.width == right.width, f"{self.name} needs two vectors of one width")
        both = is_float(left) and is_float(right)
        expect(both and left.width > 0, f"{self.name} needs floats", "call as_float() first")
        return Vector(left.width, promote(left.dtype, right.dtype))

    def reference(self, x: Columns, y: Columns) -> Columns:
        convolved = np.fft.ifft(np.fft.fft(x, axis=1) * np.fft.fft(y, axis=1), axis=1)
        return np.real(convolved).astype(np.result_type(x, y))

    def emit(self, e: Emitter, x: VectorValue, y: VectorValue) -> RowValue:
        dtype = promote(x.dtype, y.dtype)
        return listed(e, write(e, convolution, x, y, dtype), dtype, x.width)


def convolution(x: Row, y: Row, dtype: str) -> Any:
    """The circular convolution of two rows."""
    left, right = indexable(x), indexable(y)
    return [convolved(left, right, k, dtype) for k in range(len(x))]


def convolved(x: Row, y: Row, k: int, dtype: str) -> Number:
    """One number of the convolution."""
    total = cast(zero(x), dtype)
    for i in range(k + 1):
        total = added(total, cast(x[i], dtype) * cast(y[k - i], dtype))
    for i in range(k + 1, len(x)):
        total = added(total, cast(x[i], dtype) * cast(y[k - i + len(x)], dtype))
    return total


# --- adapters -------------------------------------------------------------------------------------


@adapts(
    "sklearn.random_projection.GaussianRandomProjection",
    "sklearn.random_projection.SparseRandomProjection",
)
def _random(fit: Fitted, x: Flow, to: Importer) -> Flow:
    # The products of sparse data are sparse to the library unless dense_output is set; the
    # values are the same, and few of them are zero.
    return to.floats(x).linear(plain(fit.components_), [])


@adapts("sklearn.neighbors.NeighborhoodComponentsAnalysis")
def _neighbourhood(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return to.matrix(x).linear(fit.components_, [])


@adapts("sklearn.kernel_approximation.RBFSampler")
def _rbf(fit: Fitted, x: Flow, to: Importer) -> Flow:
    angles = affine(to.matrix(x), fit.random_weights_.T, fit.random_offset_)
    return angles.cos().multiply([(2.0 / fit.n_components) ** 0.5])


@adapts("sklearn.kernel_approximation.SkewedChi2Sampler")
def _skewed(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = above(to.floats(x), -float(fit.skewedness), "SkewedChi2Sampler", strict=True)
    logs = x.add([fit.skewedness]).log()
    angles = affine(logs, fit.random_weights_.T, fit.random_offset_)
    return angles.cos().multiply([np.sqrt(2.0) / np.sqrt(fit.n_components)])


@adapts("sklearn.kernel_approximation.AdditiveChi2Sampler")
def _additive(fit: Fitted, x: Flow, to: Importer) -> Flow:
    interval = fit.sample_interval
    if interval is None:
        interval = {1: 0.8, 2: 0.5, 3: 0.4}[fit.sample_steps]
    dtype = vector(to.matrix(x).type, "AdditiveChi2Sampler").dtype
    x = above(to.floats(x), 0.0, "AdditiveChi2Sampler")
    parts = [x.chi_wave(step=0, interval=interval, sine=False)]
    for step in range(1, fit.sample_steps):
        parts += [x.chi_wave(step=step, interval=interval, sine=sine) for sine in (False, True)]
    waves = concat(*parts)
    return waves if dtype.startswith("float") else waves.cast(dtype)  # it keeps the rows' dtype


@adapts("sklearn.kernel_approximation.PolynomialCountSketch")
def _sketch(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = to.doubles(x).multiply([np.sqrt(fit.gamma)])
    product = None
    for buckets, signs in zip(fit.indexHash_, fit.bitHash_, strict=True):
        weights = np.zeros((fit.n_components, len(buckets)))
        np.add.at(weights, (buckets, np.arange(len(buckets))), signs)
        bias = weights[:, -1] * np.sqrt(fit.coef0) if fit.coef0 else []
        sketch = x.linear(weights[:, :-1] if fit.coef0 else weights, bias)
        product = sketch if product is None else product.circular_convolve(sketch)
    return product  # type: ignore[return-value]  # degree is at least 1


@adapts("sklearn.cluster.FeatureAgglomeration")
def _pooled(fit: Fitted, x: Flow, to: Importer) -> Flow:
    groups = [np.flatnonzero(fit.labels_ == label) for label in np.unique(fit.labels_)]
    pooling = fit.pooling_func
    if isinstance(pooling, Global) and pooling.module == "numpy":  # by its name in a file
        pooling = vars(np).get(pooling.name, pooling)
    if pooling is np.mean:
        members = (fit.labels_ == np.unique(fit.labels_)[:, None]).astype(np.float64)
        return to.doubles(x).linear(members, []).divide([len(group) for group in groups])
    names = {np.max: "max", np.amax: "max", np.min: "min", np.amin: "min", np.sum: "sum"}
    name = names.get(pooling)
    to.need(name, f"pooling_func={fit.pooling_func!r} is not known here", "np.mean, max, min, sum")
    x = to.matrix(x)
    return concat(*(getattr(x.select(group), str(name))() for group in groups))
