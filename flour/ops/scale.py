"""Scalers: each column shifted and scaled, or each row brought to length one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import exp, expm1, log, log1p, logical_or, where
from numpy.typing import NDArray

from flour.core.check import expect
from flour.core.emission import Emitter, ScalarValue
from flour.core.native import expression
from flour.core.op import Array
from flour.core.types import EXPECTED, FLOATS, LARGEST, Extent, Scalar, Type, Vector
from flour.core.words import Number, cast, like, number, one, zero
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.bases import Elementwise, FloatElementwise
from flour.ops.require import above


class Binarize(Elementwise, takes_sparse=True, keeps_zero=True, cuts=True, monotone=True):
    """1 where x > threshold, else 0, in x's own dtype."""

    threshold: float

    def output(self, kind: Vector | Scalar) -> Type:
        fine = self.threshold >= 0 or not (isinstance(kind, Vector) and kind.sparse)
        expect(fine, "a sparse vector's zeros are not stored, so binarize needs threshold >= 0")
        return super().output(kind)

    def compute(self, x: NDArray[Any]) -> Any:
        return type(self).function(x, self.threshold)

    @staticmethod
    def function(x: Number, threshold: float) -> Number:
        limit = number(threshold, x.dtype if x.dtype in FLOATS else "float64")
        if x.dtype == "bool":
            return cast(x, "float64") > limit
        return where(x > limit, one(x), zero(x))


class OneIfTiny(FloatElementwise):
    """x, or 1 where x is 0 or below `epsilons` of its float width: safe to divide by."""

    epsilons: float

    def compute(self, x: NDArray[Any]) -> Any:
        return one_if_tiny(x, self.epsilons * float(np.finfo(x.dtype).eps))

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, one_if_tiny, x, self.epsilons * float(np.finfo(x.dtype).eps))


def one_if_tiny(x: Number, limit: float) -> Number:
    """x, or 1 where x is 0 or below the limit."""
    return where(logical_or(x < number(limit, x.dtype), x == 0), one(x), x)


class PowerTransform(FloatElementwise, abstract=True, monotone=True):
    """A power transform, an exponent a column; numbers near the end of the range overflow."""

    exponents: Array

    def extent(self, inputs: Sequence[Extent], kinds: Sequence[Type]) -> Extent:
        (x,) = inputs
        ends = x._replace(largest=LARGEST) if EXPECTED <= x.largest < LARGEST else x
        return super().extent([ends], kinds)


class YeoJohnson(PowerTransform):
    """The Yeo-Johnson power transform, in the wider float width."""

    def compute(self, x: NDArray[Any]) -> Any:
        powers = np.broadcast_to(self.exponents.array.reshape(-1), x.shape)
        eps = np.finfo(np.result_type(x, powers)).eps
        above, below = np.log1p(np.maximum(x, 0)), np.log1p(np.maximum(-x, 0))
        upper = np.where(np.abs(powers) < eps, above, np.expm1(powers * above) / powers)
        rest = 2 - powers
        lower = np.where(np.abs(powers - 2) > eps, -np.expm1(rest * below) / rest, -below)
        result = np.where(x >= 0, upper, lower).astype(x.dtype)
        return np.where(np.isnan(x), x, result)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        wide = str(np.result_type(x.dtype, self.exponents.dtype).name)
        tiny = ScalarValue(e.number(float(np.finfo(wide).eps), wide), wide)
        return expression(e, yeo_johnson, x, ScalarValue(e.at(self.exponents, j, wide), wide), tiny)


def yeo_johnson(x: Number, power: Number, tiny: Number) -> Number:
    """The transform of x by an exponent; a logarithm where the exponent is tiny."""
    result = x
    if result >= 0:
        above = cast(log1p(result), power.dtype)
        result = cast(expm1(power * above) / power if abs(power) >= tiny else above, x.dtype)
    else:
        below = cast(log1p(-result), power.dtype)
        rest = like(power, 2) - power
        result = cast(-(expm1(rest * below) / rest if abs(rest) > tiny else below), x.dtype)
    return result


#: Beyond this, exp(x) overflows.
_LARGE = 709.78


class BoxCox(PowerTransform):
    """The Box-Cox power transform, in float64; NaN below zero."""

    def compute(self, x: NDArray[Any]) -> Any:
        powers = np.broadcast_to(self.exponents.array.reshape(-1).astype(np.float64), x.shape)
        log = np.log(x.astype(np.float64))
        product = powers * log
        huge = np.sign(powers) * np.exp(product - np.log(np.abs(powers))) - 1 / powers
        result = np.where(product < _LARGE, np.expm1(product) / powers, huge)
        return np.where(np.abs(powers) < 1e-19, log, result).astype(x.dtype)

    def element(self, e: Emitter, j: str, x: ScalarValue) -> str:
        return expression(e, box_cox, x, ScalarValue(e.at(self.exponents, j, "float64"), "float64"))


def box_cox(x: Number, power: Number) -> Number:
    """The transform of x by an exponent; a logarithm where the exponent is tiny."""
    result = log(cast(x, "float64"))
    product = power * result
    if abs(power) >= 1e-19:
        if product < _LARGE:
            result = expm1(product) / power
        else:
            sign = 1.0 if power > 0.0 else -1.0
            result = sign * exp(product - log(abs(power))) - 1.0 / power
    return cast(result, x.dtype)


# --- adapters ---------------------------------------------------------------------------------


@adapts("sklearn.preprocessing.StandardScaler")
def _standard_scaler(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = to.floats(x)
    if fit.with_mean:
        x = x.subtract(fit.mean_)
    if not fit.with_std:
        return x
    # Sparse data is scaled in place by the reciprocal, dense data is divided.
    return x.multiply(1 / fit.scale_, wide=True) if to.is_sparse(x) else x.divide(fit.scale_)


@adapts("sklearn.preprocessing.MinMaxScaler")
def _min_max_scaler(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = to.floats(x).multiply(fit.scale_, wide=True).add(fit.min_, wide=True)
    low, high = fit.feature_range
    return x.clip([low], [high]) if fit.clip else x


@adapts("sklearn.preprocessing.MaxAbsScaler")
def _max_abs_scaler(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = to.floats(x)
    if to.is_sparse(x):
        x = x.multiply(1.0 / fit.scale_, wide=True)
        return x.clip([-1.0], [1.0]).to_sparse() if fit.clip else x
    x = x.divide(fit.scale_, wide=True)
    return x.clip([-1.0], [1.0]) if fit.clip else x


@adapts("sklearn.preprocessing.RobustScaler")
def _robust_scaler(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = to.floats(x)
    if to.is_sparse(x):
        return x.multiply(1.0 / fit.scale_, wide=True) if fit.with_scaling else x
    if fit.with_centering:
        x = x.subtract(fit.center_, wide=True)
    return x.divide(fit.scale_, wide=True) if fit.with_scaling else x


@adapts("sklearn.preprocessing.Normalizer")
def _normalizer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return unit_rows(to.floats(x), fit.norm, to)


def unit_rows(x: Flow, norm: str, to: Importer) -> Flow:
    """Every row over its norm, as the library's normalize: tiny dense rows are left alone."""
    if norm == "max" and to.fitted < (0, 23):  # the largest number, also where it is negative
        largest = x.max()
        return x / largest.equal(0.0).where(1.0, largest)
    epsilons = 0.0 if to.is_sparse(x) or to.fitted < (1, 0) else 10.0
    return x / x.norm(norm).one_if_tiny(epsilons)


@adapts("sklearn.preprocessing.Binarizer")
def _binarizer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return to.matrix(x).binarize(fit.threshold)


@adapts("sklearn.preprocessing.KernelCenterer")
def _kernel_centerer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = to.floats(x)
    mean = x.sum().divide([float(len(fit.K_fit_rows_))])
    return (x.subtract(fit.K_fit_rows_, wide=True) - mean).add([fit.K_fit_all_], wide=True)


@adapts("sklearn.preprocessing.PowerTransformer")
def _power_transformer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = to.floats(x)
    if fit.standardize:
        # For a deviation within the rounding of its mean later versions take 1.
        rounding = (
            fit._scaler.n_samples_seen_ * np.finfo(np.float64).eps * np.abs(fit._scaler.mean_)
        )
        to.need(not bool(np.any(fit._scaler.scale_ < rounding)), _CONSTANT, "train it again")
    box_cox = fit.method == "box-cox"
    if box_cox:
        x = above(x, 0.0, "PowerTransformer", strict=True).box_cox(fit.lambdas_)
    else:
        x = x.yeo_johnson(fit.lambdas_)
    return to.transform(fit._scaler, x) if fit.standardize else x


_CONSTANT = "a constant column is divided by a rounding error, as scikit-learn 0.24 fitted it"
