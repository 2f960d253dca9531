"""Kernels: linear models in their space, Nystroem's components, labels and manifolds."""

from __future__ import annotations

import numpy as np

from flour.language.adapters import Fitted, Importer, adapts, declines
from flour.language.flow import Flow
from flour.ops.kernel import pairwise_kernel
from flour.ops.linear import plain
from flour.ops.nearest import WeightedRows
from flour.ops.neighbours import fitted_points, nearest
from flour.sklearn.versions import renewed


def _to_training_rows(fit: Fitted, x: Flow, to: Importer, gamma: float | None) -> Flow:
    """The kernel between x and the training rows of an estimator with the usual settings."""
    points = fitted_points(fit.X_fit_, to)
    how = {"gamma": gamma, "degree": fit.degree, "coef0": fit.coef0}
    return pairwise_kernel(x, points, fit.kernel, to, **how)


@adapts("sklearn.kernel_ridge.KernelRidge")
def _kernel_ridge(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    weights = np.atleast_2d(fit.dual_coef_.T)
    value = _to_training_rows(fit, x, to, fit.gamma).linear(weights, [])
    return {"value": value.element(0) if fit.dual_coef_.ndim == 1 else value}


@adapts("sklearn.decomposition.KernelPCA")
def _kernel_pca(fit: Fitted, x: Flow, to: Importer) -> Flow:
    return kernel_components(fit, _to_training_rows(fit, x, to, fit.gamma_), to)


def kernel_components(fit: Fitted, kernel: Flow, to: Importer) -> Flow:
    """The centred kernel, projected on the components of a KernelPCA."""
    centred = to.transform(fit._centerer, kernel, "_centerer")
    nonzero, scaled = np.flatnonzero(fit.eigenvalues_), np.zeros_like(fit.eigenvectors_)
    scaled[:, nonzero] = fit.eigenvectors_[:, nonzero] / np.sqrt(fit.eigenvalues_[nonzero])
    return centred.linear(scaled.T, [])


#: The parameters in `kernel_params` that each kernel takes; others are dropped, as in the library.
TAKES = {
    "chi2": ("gamma",),
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "poly": ("gamma", "degree", "coef0"),
    "polynomial": ("gamma", "degree", "coef0"),
}


@adapts("sklearn.kernel_approximation.Nystroem")
def _nystroem(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(isinstance(fit.kernel, str), "a kernel that is a Python function stays Python")
    takes = TAKES.get(fit.kernel, ())
    available = {**(fit.kernel_params or {})}
    available |= {name: getattr(fit, name) for name in takes if getattr(fit, name) is not None}
    settings = {name: value for name, value in available.items() if name in takes}
    if fit.kernel == "chi2":
        settings.setdefault("gamma", 1.0)
    points = np.asarray(plain(fit.components_))
    return pairwise_kernel(x, points, fit.kernel, to, **settings).linear(fit.normalization_, [])


# --- labels that spread ---------------------------------------------------------------------------


@adapts("sklearn.semi_supervised.LabelPropagation", "sklearn.semi_supervised.LabelSpreading")
def _labels(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    to.need(not callable(fit.kernel), "a kernel that is a Python function stays Python")
    if fit.kernel == "knn":
        places, _ = nearest(fit.nn_fit, x, to, fit.nn_fit.n_neighbors)
        votes = WeightedRows(fit.label_distributions_)(places)
    else:
        points = fitted_points(fit.X_, to)
        weights = pairwise_kernel(x, points, fit.kernel, to, gamma=fit.gamma)
        votes = weights.linear(fit.label_distributions_.T, [])
    shares = votes / votes.sum()
    return {"label": shares.arg_max().take(fit.classes_), "probabilities": shares}


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
