"""Adapters of sklearn.discriminant_analysis, and of the distance from the middle of an ellipse."""

from __future__ import annotations

import numpy as np

from flour.language.adapters import Fitted, Importer, adapts, declines, of_logarithms
from flour.language.flow import Flow
from flour.language.sources import concat
from flour.ops.linear import affine
from flour.sklearn.estimators.linear_models import both, inliers


@adapts("sklearn.discriminant_analysis.LinearDiscriminantAnalysis")
def _linear(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    x = to.matrix(x)
    scores = affine(x, fit.coef_, fit.intercept_)
    binary = len(fit.classes_) == 2
    shares = both(scores.sigmoid()) if binary else scores.softmax()
    smallest = float(np.finfo(fit.coef_.dtype).smallest_normal)
    logs = shares.equal([0.0]).cast_like(shares).multiply([smallest]).plus(shares).log()
    outputs = to.classifier(fit.classes_, scores, shares) | {"log_probabilities": logs}
    if fit.solver == "lsqr":
        return outputs
    if fit.solver == "svd":
        x = to.promoted(x, fit.xbar_).subtract(fit.xbar_)
    return {**outputs, "features": x.linear(fit.scalings_[:, : fit._max_components].T, [])}


@adapts("sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis")
def _quadratic(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    x = to.promoted(x, *fit.means_)
    facts = zip(fit.means_, fit.rotations_, fit.scalings_, strict=True)
    # The squared distances of x from the mean of each class, in the class's own axes.
    parts = [
        x.subtract(mean).linear((rotation * scaling ** (-0.5)).T, []).square().sum()
        for mean, rotation, scaling in facts
    ]
    spread = np.stack([np.sum(np.log(s)) for s in fit.scalings_])
    scores = concat(*parts).add(spread).multiply([-0.5])
    scores = to.promoted(scores, fit.priors_).add(np.log(fit.priors_))
    shifted = scores.minus(scores.max())
    logs = shifted.minus(shifted.exp().sum().log())
    label = scores.arg_max().take(fit.classes_)
    if len(fit.classes_) == 2:
        scores = scores.element(1).minus(scores.element(0))
    return {"label": label, **of_logarithms(logs), "scores": scores}


@adapts("sklearn.covariance.EllipticEnvelope")
def _envelope(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    centred = to.doubles(x).subtract(fit.location_)
    distance = centred.linear(fit.get_precision(), []).times(centred).sum()
    # The library takes the root of the squared distance and squares it again.
    scores = distance.sqrt().square().negate().subtract([fit.offset_])
    return {"label": inliers(scores, "int64"), "scores": scores}


declines(
    "refused: it estimates a covariance and has nothing to say about rows",
    *(
        f"sklearn.covariance.{name}"
        for name in (
            *("EmpiricalCovariance", "ShrunkCovariance", "LedoitWolf", "OAS", "MinCovDet"),
            *("GraphicalLasso", "GraphicalLassoCV"),
        )
    ),
)
