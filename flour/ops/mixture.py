"""Mixtures of Gaussians: log-densities of every component, then shares."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, is_float, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import listed, write
from flour.core.op import Arity, Columns, Op
from flour.core.types import Type, Vector
from flour.core.words import Number, Row, added, indexable, size, zero
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow


class SumRuns(Op, arity=Arity.AGGREGATE):
    """The sum of every `run` consecutive columns."""

    run: int

    def check(self) -> None:
        if self.run < 1:
            raise ParameterError("a run has at least one column", found=str(self.run))

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "sum_runs")
        expect(is_float(kind), f"sum_runs adds floats, got {kind}", "call as_float() first")
        expect(kind.width % self.run == 0, f"{kind.width} columns are not runs of {self.run}")
        return Vector(kind.width // self.run, kind.dtype)

    def reference(self, x: Columns) -> Columns:
        return x.reshape(len(x), x.shape[1] // self.run, self.run).sum(axis=2)

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return listed(
            e,
            write(e, sums_of_runs, x, self.run, x.width // self.run),
            x.dtype,
            x.width // self.run,
        )


def sums_of_runs(x: Row, length: int, count: int) -> Any:
    """The sum of every run of columns."""
    columns, run = indexable(x), size(length)
    return [sum_of_run(columns, o * run, run) for o in range(count)]


def sum_of_run(x: Row, first: int, run: int) -> Number:
    """The sum of some columns from the first on."""
    total = zero(x)
    for j in range(run):
        total = added(total, x[first + j])
    return total


@adapts("sklearn.mixture.GaussianMixture")
def _mixture(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return _shares(_densities(fit, x, to).add(np.log(fit.weights_)))


@adapts("sklearn.mixture.BayesianGaussianMixture")
def _bayesian_mixture(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    width = fit.means_.shape[1]
    spread = 0.5 * (fit.degrees_of_freedom_ - np.arange(0, width)[:, None])
    log_lambda = width * np.log(2.0) + np.sum(_digamma(spread), 0)
    logs = _densities(fit, x, to)
    logs = logs.subtract(0.5 * width * np.log(fit.degrees_of_freedom_))
    logs = logs.add(0.5 * (log_lambda - width / fit.mean_precision_))
    return _shares(logs.add(_expected_log_weights(fit)))


def _expected_log_weights(fit: Fitted) -> NDArray[np.float64]:
    """The expected logarithms of the weights, a function of fitted numbers alone."""
    if fit.weight_concentration_prior_type != "dirichlet_process":
        return np.asarray(
            _digamma(fit.weight_concentration_) - _digamma(np.sum(fit.weight_concentration_))
        )
    taken, left = fit.weight_concentration_
    whole = _digamma(taken + left)
    return np.asarray(
        _digamma(taken) - whole + np.hstack((0, np.cumsum(_digamma(left) - whole)[:-1]))
    )


def _digamma(x: NDArray[Any]) -> Any:
    """The logarithmic derivative of the gamma function for positive numbers, to the last bits.

    Numbers are moved up to 12 by the recurrence, where eight terms of the asymptotic series are
    enough for float64.
    """
    x = np.asarray(x, np.float64)
    below = np.zeros_like(x)
    while np.any(low := x < 12.0):
        below = np.where(low, below - 1.0 / x, below)
        x = np.where(low, x + 1.0, x)
    square = 1.0 / (x * x)
    series = np.zeros_like(x)
    for term in reversed(_BERNOULLI):
        series = square * (term + series)
    return below + np.log(x) - 0.5 / x - series


#: B(2k) / 2k, the coefficients of that series.
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 5 / 660, -691 / 32760, 1 / 12, -3617 / 8160)


def _shares(logs: Flow) -> dict[str, Flow]:
    """Labels and probabilities from the log-densities times weights."""
    probabilities = (logs - logs.log_sum_exp()).exp()
    return {"label": logs.arg_max(), "probabilities": probabilities}


def _densities(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The logarithm of every component's density at x."""
    width = fit.means_.shape[1]
    exponents = _FORMS[fit.covariance_type](fit, x, to).add(width * math.log(2 * math.pi))
    # The result is at least as wide as the fitted numbers.
    logs = to.promoted(exponents.multiply(-0.5), fit.means_, fit.precisions_cholesky_)
    return logs.add(_log_determinants(fit))


def _log_determinants(fit: Fitted) -> Any:
    """Half the logarithm of the determinant of every component's precision."""
    roots, width = fit.precisions_cholesky_, fit.means_.shape[1]
    if fit.covariance_type == "full":
        return np.sum(np.log(roots.reshape(len(roots), -1)[:, :: width + 1]), axis=1)
    if fit.covariance_type == "tied":
        return np.sum(np.log(np.diagonal(roots)))
    if fit.covariance_type == "diag":
        return np.sum(np.log(roots), axis=1)
    return width * np.log(roots)


def _turned(fit: Fitted, x: Flow, to: Importer, roots: list[Any]) -> Flow:
    """|(x - mean) @ root|^2 for every component, kept in the data's own float width."""
    weights = np.concatenate([root.T for root in roots])
    offsets = [mean @ root for mean, root in zip(fit.means_, roots, strict=True)]
    wide = to.promoted(x, fit.means_, fit.precisions_cholesky_)
    squares = wide.linear(weights, -np.concatenate(offsets)).square()
    return squares.sum_runs(fit.means_.shape[1]).cast_like(to.floats(x))


def _diag(fit: Fitted, x: Flow, to: Importer) -> Flow:
    # Squares are taken in the data's own float width, as the library takes them.
    precisions, x = fit.precisions_cholesky_**2, to.floats(x)
    constant = np.sum(fit.means_**2 * precisions, axis=1)
    crossed = x.linear(-2.0 * (fit.means_ * precisions), []).add(constant)
    return crossed + x.square().linear(precisions, [])


def _spherical(fit: Fitted, x: Flow, to: Importer) -> Flow:
    precisions, x = fit.precisions_cholesky_**2, to.floats(x)
    constant = np.sum(fit.means_**2, axis=1) * precisions
    crossed = x.linear(-2.0 * fit.means_, []).multiply(precisions).add(constant)
    return crossed + x.square().sum().as_vector().linear(precisions[:, None], [])


_FORMS: dict[str, Callable[[Fitted, Flow, Importer], Flow]] = {
    "full": lambda fit, x, to: _turned(fit, x, to, list(fit.precisions_cholesky_)),
    "tied": lambda fit, x, to: _turned(fit, x, to, [fit.precisions_cholesky_] * len(fit.means_)),
    "diag": _diag,
    "spherical": _spherical,
}
