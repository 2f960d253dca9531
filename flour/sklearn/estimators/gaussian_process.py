"""Gaussian processes: covariances with the training points, then what was learnt of those."""

from __future__ import annotations

import numpy as np

from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.neighbours import fitted_points
from flour.sklearn.estimators.gaussian_kernels import covariance, variance


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
    second = _averaged(mean, spread)
    return {
        "label": mean.greater(0.0).cast("int64").take(fit.classes_),
        "probabilities": second.one_minus().concat(second),
    }


def _averaged(mean: Flow, spread: Flow) -> Flow:
    """The logistic function averaged over a normal variable of this mean and variance."""
    alpha = spread.multiply(2.0).reciprocal()
    steep = mean.fill(_STEEPNESS)
    squared = mean.fill(_STEEPNESS**2)
    waves = (steep * mean * (alpha / (squared + alpha)).sqrt()).erf()
    integrals = alpha.quotient(np.pi).sqrt() * waves
    integrals = integrals / spread.multiply(2.0).multiply(np.pi).sqrt().multiply(2.0)
    return integrals.multiply(_WEIGHTS).sum().add(0.5 * _WEIGHTS.sum())


@adapts("sklearn.gaussian_process.GaussianProcessClassifier")
def _classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    made = to.predict(fit.base_estimator_, x)
    one_vs_one = fit.n_classes_ > 2 and fit.multi_class == "one_vs_one"
    # One against one the library has no probabilities; scores it never has.
    kept = ("label",) if one_vs_one else ("label", "probabilities")
    return {name: made[name] for name in kept}
