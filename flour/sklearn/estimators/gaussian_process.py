"""Gaussian processes: covariances with the training points, then what was learnt of those.

A kernel is either a flow with one number per training point or, where it is the same for all rows
and points (constants, white noise), that number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.kernel import pairwise_kernel
from flour.ops.neighbours import fitted_points


@adapts("sklearn.gaussian_process.GaussianProcessRegressor")
def _regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    points = fitted_points(fit.X_train_, to)
    weights = np.atleast_2d(fit.alpha_.T)
    value = covariance(fit.kernel_, x, points, to).linear(weights, [])
    value = value.multiply(fit._y_train_std).add(fit._y_train_mean)
    return {"value": value.element(0) if len(weights) == 1 else value}


# --- classification: Laplace's approximation ------------------------------------------------------

# The logistic function as a mixture of five error functions (Williams and Barber, 1998).
_STEEPNESS = np.array([0.41, 0.4, 0.37, 0.44, 0.39])
_WEIGHTS = np.array([-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654])


@adapts("sklearn.gaussian_process._BinaryGaussianProcessClassifierLaplace")
def _binary(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    points = fitted_points(fit.X_train_, to)
    near = covariance(fit.kernel_, x, points, to)
    mean = near.linear((fit.y_train_ - fit.pi_)[None], []).element(0)
    solved = near.multiply(fit.W_sr_).solve_lower(fit.L_)
    spread = variance(fit.kernel_, x, to) - solved.square().sum()
    # The logistic function averaged over a normal variable of this mean and variance.
    alpha = spread.multiply(2.0).reciprocal()
    steep = mean.fill(_STEEPNESS)
    squared = mean.fill(_STEEPNESS**2)
    waves = (steep * mean * (alpha / (squared + alpha)).sqrt()).erf()
    integrals = alpha.quotient(np.pi).sqrt() * waves
    integrals = integrals / spread.multiply(2.0).multiply(np.pi).sqrt().multiply(2.0)
    second = integrals.multiply(_WEIGHTS).sum().add(0.5 * _WEIGHTS.sum())
    return {
        "label": mean.greater(0.0).cast("int64").take(fit.classes_),
        "probabilities": second.one_minus().concat(second),
    }


@adapts("sklearn.gaussian_process.GaussianProcessClassifier")
def _classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    made = to.predict(fit.base_estimator_, x)
    one_vs_one = fit.n_classes_ > 2 and fit.multi_class == "one_vs_one"
    # One against one the library has no probabilities; scores it never has.
    kept = ("label",) if one_vs_one else ("label", "probabilities")
    return {name: made[name] for name in kept}


# --- kernels --------------------------------------------------------------------------------------


def covariance(kernel: Fitted, x: Flow, points: NDArray[Any], to: Importer) -> Flow:
    """The covariance of x with every training point."""
    kernel_value = _walk(kernel, x, points, to)
    return (
        kernel_value
        if not isinstance(kernel_value, float)
        else x.fill(np.full(len(points), kernel_value))
    )


def variance(kernel: Fitted, x: Flow, to: Importer) -> Flow:
    """The prior variance at x."""
    kernel_value = _own(kernel, x, to)
    return (
        kernel_value if not isinstance(kernel_value, float) else x.fill([kernel_value], scalar=True)
    )


def _walk(kernel: Fitted, x: Flow, points: NDArray[Any], to: Importer) -> Flow | float:
    name = type(kernel).__name__
    if name in ("Sum", "Product"):
        both = (_walk(part, x, points, to) for part in (kernel.k1, kernel.k2))
        return _sum(*both) if name == "Sum" else _product(*both)
    if name == "Exponentiation":
        return _power(_walk(kernel.kernel, x, points, to), float(kernel.exponent))
    if name == "ConstantKernel":
        return float(kernel.constant_value)
    if name == "WhiteKernel":
        return 0.0
    to.need(name in _KERNELS, f"the kernel {name} is not native", "use one of scikit-learn's own")
    return _KERNELS[name](kernel, x, points, to)


def _sum(left: Flow | float, right: Flow | float) -> Flow | float:
    if isinstance(left, float):
        return left + right if isinstance(right, float) else right.add(left)
    return left.add(right) if isinstance(right, float) else left + right


def _product(left: Flow | float, right: Flow | float) -> Flow | float:
    if isinstance(left, float):
        return left * right if isinstance(right, float) else right.multiply(left)
    return left.multiply(right) if isinstance(right, float) else left * right


def _power(base: Flow | float, exponent: float) -> Flow | float:
    if isinstance(base, float):
        return float(base**exponent)
    return base.square() if exponent == 2 else base.power(exponent)


def _scaled(kernel: Fitted, x: Flow, points: NDArray[Any], metric: str, to: Importer) -> Flow:
    """Distances in units of the kernel's length scale."""
    scale = np.squeeze(kernel.length_scale).astype(float)
    return to.doubles(x).divide(scale).distances(points / scale, metric)


def _matern(kernel: Fitted, x: Flow, points: NDArray[Any], to: Importer) -> Flow:
    to.need(
        kernel.nu in (0.5, 1.5, 2.5, np.inf),
        f"the Matern kernel with nu={kernel.nu} needs Bessel functions, which are not native",
        "use nu of 0.5, 1.5, 2.5 or infinity",
    )
    distances = _scaled(kernel, x, points, "euclidean", to)
    if kernel.nu == 0.5:
        return distances.negate().exp()
    if kernel.nu == np.inf:
        return distances.square().negate().divide(2.0).exp()
    if kernel.nu == 1.5:
        distances = distances.multiply(math.sqrt(3))
        return distances.add(1.0) * distances.negate().exp()
    distances = distances.multiply(math.sqrt(5))
    return (distances.add(1.0) + distances.square().divide(3.0)) * distances.negate().exp()


def _rational_quadratic(kernel: Fitted, x: Flow, points: NDArray[Any], to: Importer) -> Flow:
    distances = to.doubles(x).distances(points, "sqeuclidean")
    distances = distances.divide(float(2 * kernel.alpha * kernel.length_scale**2))
    return distances.add(1.0).power(-float(kernel.alpha))


def _exp_sine_squared(kernel: Fitted, x: Flow, points: NDArray[Any], to: Importer) -> Flow:
    distances = to.doubles(x).distances(points, "euclidean")
    waves = distances.multiply(float(np.pi / kernel.periodicity)).sin()
    return waves.divide(float(kernel.length_scale)).square().multiply(-2.0).exp()


def _dot_product(kernel: Fitted, x: Flow, points: NDArray[Any], to: Importer) -> Flow:
    to.need(points.dtype != np.float32, "DotProduct on float32 training data rounds in its own way")
    return to.doubles(x).linear(points, []).add(float(kernel.sigma_0**2))


def _pairwise(kernel: Fitted, x: Flow, points: NDArray[Any], to: Importer) -> Flow:
    settings = dict(kernel.pairwise_kernels_kwargs or {})
    return pairwise_kernel(x, points, kernel.metric, to, gamma=kernel.gamma, **settings)


_KERNELS: dict[str, Callable[[Fitted, Flow, NDArray[Any], Importer], Flow]] = {
    "RBF": lambda kernel, x, points, to: (
        _scaled(kernel, x, points, "sqeuclidean", to).multiply(-0.5).exp()
    ),
    "Matern": _matern,
    "RationalQuadratic": _rational_quadratic,
    "ExpSineSquared": _exp_sine_squared,
    "DotProduct": _dot_product,
    "PairwiseKernel": _pairwise,
}


def _own(kernel: Fitted, x: Flow, to: Importer) -> Flow | float:
    """The kernel between a row and itself."""
    name = type(kernel).__name__
    if name in ("Sum", "Product"):
        both = (_own(part, x, to) for part in (kernel.k1, kernel.k2))
        return _sum(*both) if name == "Sum" else _product(*both)
    if name == "Exponentiation":
        return _power(_own(kernel.kernel, x, to), float(kernel.exponent))
    if name == "ConstantKernel":
        return float(kernel.constant_value)
    if name == "WhiteKernel":
        return float(kernel.noise_level)
    if name == "DotProduct":
        # The library squares and adds float32 data in float32 here.
        return to.floats(x).square().sum().cast("float64").add(float(kernel.sigma_0**2))
    to.need(name in _KERNELS and name != "PairwiseKernel", f"the variance by {name} is not native")
    return 1.0
