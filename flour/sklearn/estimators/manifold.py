"""Manifold learners that place new rows among the training points they are nearest to."""

from __future__ import annotations

import numpy as np

from flour.language.adapters import Fitted, Importer, adapts, declines
from flour.language.flow import Flow
from flour.ops.nearest import WeightedRows
from flour.ops.neighbours import fitted_points, nearest
from flour.sklearn.estimators.kernel_models import kernel_components
from flour.sklearn.versions import renewed


@adapts("sklearn.manifold.Isomap")
def _isomap(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(
        fit.n_neighbors is not None,
        "neighbours within a radius differ in number from row to row",
        "fit it with n_neighbors=",
    )
    to.need(not to.is_sparse(x), "Isomap of sparse rows is not native")
    places, near = nearest(fit.nbrs_, x, to, fit.nbrs_.n_neighbors)
    ways = places.shortest_way(near, np.asarray(fit.dist_matrix_))
    # The library writes the ways down in the data's own float width, and goes on in float64.
    kernel = ways.cast_like(to.floats(x)).square().multiply(-0.5)
    wide = fit.kernel_pca_.X_fit_.dtype != np.float32
    return kernel_components(
        renewed(fit.kernel_pca_), kernel.cast("float64") if wide else kernel, to
    )


@adapts("sklearn.manifold.LocallyLinearEmbedding")
def _locally_linear(fit: Fitted, x: Flow, to: Importer) -> Flow:
    points = fitted_points(fit.nbrs_._fit_X, to)
    to.need(points.dtype == np.float64, "float32 training data is solved for in float32")
    places, _ = nearest(fit.nbrs_, x, to, fit.n_neighbors)
    weights = to.doubles(x).barycentre(places, points, float(fit.reg))
    weights = weights.cast_like(to.floats(x))
    return WeightedRows(fit.embedding_.astype(np.float64))(places, weights).cast("float64")


declines(
    "refused: it has no transform for new rows",
    *(f"sklearn.manifold.{name}" for name in ("MDS", "ClassicalMDS", "SpectralEmbedding", "TSNE")),
)
