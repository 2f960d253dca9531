"""Adapters of sklearn.covariance: the distance from the middle of a fitted ellipse."""

from __future__ import annotations

from flour.language.adapters import Fitted, Importer, adapts, declines
from flour.language.flow import Flow
from flour.sklearn.estimators.linear_models import inliers


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
