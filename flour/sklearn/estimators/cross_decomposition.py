"""Adapters of sklearn.cross_decomposition: centred, scaled, rotated."""

from __future__ import annotations

import numpy as np

from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.linear import affine, in_place
from flour.sklearn.versions import changed


@adapts(
    "sklearn.cross_decomposition.PLSRegression",
    "sklearn.cross_decomposition.PLSCanonical",
    "sklearn.cross_decomposition.CCA",
)
def _pls(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    whole = (fit.x_rotations_ @ fit.y_loadings_.T * fit._y_std).T / fit._x_std
    known = fit.coef_.shape == whole.shape
    if not known or not np.allclose(fit.coef_, whole, rtol=1e-6, equal_nan=True):
        changed(to, fit, "its coefficients were for scaled columns", "1.4")
    centred = in_place(to.floats(x), lambda x: x.subtract(fit._x_mean))
    value = affine(centred, fit.coef_, fit.intercept_)
    scaled = in_place(centred, lambda x: x.divide(fit._x_std))
    return {
        "value": value.element(0) if fit._predict_1d else value,
        "features": scaled.linear(fit.x_rotations_.T, []),
    }


@adapts("sklearn.cross_decomposition.PLSSVD")
def _pls_svd(fit: Fitted, x: Flow, to: Importer) -> Flow:
    scaled = to.doubles(x).subtract(fit._x_mean).divide(fit._x_std)
    return scaled.linear(fit.x_weights_.T, [])
