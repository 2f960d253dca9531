"""Feature selection: the selected columns, and the answers of a selector's estimator for them."""

from __future__ import annotations

import numpy as np

from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow


@adapts(
    "sklearn.feature_selection.GenericUnivariateSelect",
    "sklearn.feature_selection.SelectFdr",
    "sklearn.feature_selection.SelectFpr",
    "sklearn.feature_selection.SelectFromModel",
    "sklearn.feature_selection.SelectFwe",
    "sklearn.feature_selection.SelectKBest",
    "sklearn.feature_selection.SelectPercentile",
    "sklearn.feature_selection.SequentialFeatureSelector",
    "sklearn.feature_selection.VarianceThreshold",
)
def _selector(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return kept(fit, x, to)


@adapts("sklearn.feature_selection.RFE", "sklearn.feature_selection.RFECV")
def _elimination(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    features = kept(fit, x, to)
    outputs = to.predict(fit.estimator_, features, "estimator_")
    return {**{k: v for k, v in outputs.items() if k != "distances"}, "features": features}


def kept(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The columns a selector keeps, in their own dtype."""
    support = np.asarray(fit.get_support())
    x = to.matrix(x)
    selected = x if support.all() else x.select(np.flatnonzero(support))
    # Without any column the library returns an empty array, for sparse data too.
    return selected if support.any() else selected.to_dense()
