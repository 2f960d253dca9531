"""Adapters of decompositions whose answer for a row does not depend on other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.language.adapters import Fitted, Importer, adapts, declines
from flour.language.flow import Flow
from flour.ops.linear import affine, in_place


@adapts("sklearn.decomposition.PCA", "sklearn.decomposition.IncrementalPCA")
def _pca(fit: Fitted, x: Flow, to: Importer) -> Flow:
    components = fit.components_
    projected = to.floats(x).linear(components, [])
    projected = _shifted(projected, np.reshape(fit.mean_, -1) @ components.T, components)
    if not fit.whiten:
        return projected
    scale = np.sqrt(fit.explained_variance_)
    scale = np.maximum(scale, np.finfo(scale.dtype).eps)
    if scale.dtype == components.dtype:
        return projected.divide(scale)
    return in_place(projected, lambda x: x.divide(scale))


def _shifted(products: Flow, offset: NDArray[Any], components: NDArray[Any]) -> Flow:
    """The products less those of the mean, which the library subtracts in place."""
    if offset.dtype == components.dtype:
        return products.subtract(offset)
    return in_place(products, lambda x: x.subtract(offset))


@adapts("sklearn.decomposition.TruncatedSVD")
def _truncated(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return to.matrix(x).linear(fit.components_, [])


@adapts("sklearn.decomposition.FactorAnalysis")
def _factors(fit: Fitted, x: Flow, to: Importer) -> Flow:
    weights = fit.components_ / fit.noise_variance_
    covariance = np.linalg.inv(np.eye(len(weights)) + np.dot(weights, fit.components_.T))
    centred = to.promoted(x, fit.mean_).subtract(fit.mean_)
    return centred.linear(weights, []).linear(covariance.T, [])


@adapts("sklearn.decomposition.FastICA")
def _independent(fit: Fitted, x: Flow, to: Importer) -> Flow:
    x = to.floats(x)
    if fit.whiten:
        x = in_place(x, lambda x: x.subtract(fit.mean_))
    return x.linear(fit.components_, [])


@adapts("sklearn.decomposition.SparsePCA", "sklearn.decomposition.MiniBatchSparsePCA")
def _sparse_pca(fit: Fitted, x: Flow, to: Importer) -> Flow:
    centred = to.promoted(x, fit.mean_).subtract(fit.mean_)
    weights = ridge_weights(fit.components_, fit.ridge_alpha)
    return centred.cast(str(weights.dtype.name)).linear(weights, [])


def ridge_weights(components: NDArray[Any], alpha: float) -> Any:
    """The matrix whose product with a row is its ridge solution: solve(C C' + alpha, C)."""
    outputs, columns = components.shape
    if outputs <= columns:
        gram = components @ components.T
        gram.flat[:: outputs + 1] += alpha
        return np.linalg.solve(gram, components)
    gram = components.T @ components
    gram.flat[:: columns + 1] += alpha
    return np.linalg.solve(gram, components.T).T


declines(
    "refused: its iterations stop when all rows together have settled, so a row's answer depends "
    "on the rows it comes with",
    "sklearn.decomposition.NMF",
    "sklearn.decomposition.MiniBatchNMF",
)


# --- partial least squares ------------------------------------------------------------------------


@adapts(
    "sklearn.cross_decomposition.PLSRegression",
    "sklearn.cross_decomposition.PLSCanonical",
    "sklearn.cross_decomposition.CCA",
)
def _pls(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    table = (fit.x_rotations_ @ fit.y_loadings_.T * fit._y_std).T
    centred = in_place(to.floats(x), lambda x: x.subtract(fit._x_mean))
    scaled = in_place(centred, lambda x: x.divide(fit._x_std))
    # To 1.3, coefficients are for scaled columns; to 1.2, a row is a column's.
    known = [
        affine(given, coefficients, getattr(fit, "intercept_", fit._y_mean))
        for given, wanted in ((centred, table / fit._x_std), (scaled, table))
        for coefficients in (fit.coef_, fit.coef_.T)
        if coefficients.shape == wanted.shape
        and np.allclose(coefficients, wanted, rtol=1e-6, equal_nan=True)
    ]
    to.need(known, "these coefficients are not those of its rotations and loadings")
    value = known[0]
    return {
        "value": value.element(0) if fit._predict_1d else value,
        "features": scaled.linear(fit.x_rotations_.T, []),
    }


@adapts("sklearn.cross_decomposition.PLSSVD")
def _pls_svd(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return to.doubles(x).subtract(fit._x_mean).divide(fit._x_std).linear(fit.x_weights_.T, [])
