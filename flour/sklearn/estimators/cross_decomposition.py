"""Adapters of sklearn.cross_decomposition: centred, scaled, rotated."""

from __future__ import annotations

from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.linear import affine, in_place


@adapts(
    "sklearn.cross_decomposition.PLSRegression",
    "sklearn.cross_decomposition.PLSCanonical",
    "sklearn.cross_decomposition.CCA",
)
def _pls(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
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
