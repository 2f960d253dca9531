"""Estimators over the nearest training points: neighbours, centroids, local outliers.

The k nearest points are found in the library's own tree where it has one, and otherwise by
measuring every point, so that among points equally far the same ones are taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flour.language.adapters import Fitted, Importer, adapts, declines, of_logarithms
from flour.language.flow import Flow
from flour.ops.distance import METRICS
from flour.ops.nearest import Closeness, Maximum, Scatter, Votes, WeightedRows
from flour.ops.tree_search import REDUCED, TreeNearest, tree_nodes

#: Training points of more numbers than this are refused: searching them all would take too long.
MOST = 2**28
ALIASES = {
    "l2": "euclidean",
    "cityblock": "manhattan",
    "l1": "manhattan",
    "infinity": "chebyshev",
    "p": "minkowski",
}


# --- which points, how far ------------------------------------------------------------------------


class Reach(NamedTuple):
    """Distances of all training points: those that decide which are nearest, and those reported."""

    order: Flow
    reported: Flow
    #: Both are squared distances still.
    squared: bool

    def distances(self, picked: Flow) -> Flow:
        """Distances, from some or all of the reported numbers."""
        return picked.sqrt().cast("float64") if self.squared else picked


def reach(fit: Fitted, x: Flow, to: Importer) -> Reach:
    """The distances of x from the training points of this estimator."""
    if fit.metric == "precomputed":
        to.need(not to.is_sparse(x), "a sparse matrix of precomputed distances has no numbers")
        return _same(to.floats(x))
    to.need(not callable(fit.metric), "a metric that is a Python function stays Python")
    points = fitted_points(fit._fit_X, to)
    metric = ALIASES.get(fit.effective_metric_, fit.effective_metric_)
    if metric == "euclidean":
        # Trees subtract, brute force multiplies matrices.
        #
        # On float32 training data brute force chooses in float64 and reports distances in float32.
        if fit._fit_method != "brute" or fit.effective_metric_ != "euclidean":
            squared = to.doubles(x).distances(points, "sqeuclidean")
            return Reach(squared, squared, squared=True)
        wide = to.floats(x).squared_distances(points.astype(np.float64))
        return Reach(wide, to.floats(x).squared_distances(points), squared=True)
    if metric == "cosine":
        similar = cosine_similarity(to.doubles(x), points.astype(np.float64))
        return _same(similar.multiply(-1.0).add(1.0).clip(0.0, 2.0))
    to.need(metric in METRICS, f"distances by {metric!r} are not native yet", _METRICS)
    brute = fit._fit_method == "brute"
    to.need(
        not brute or (points.dtype != np.float32 and metric != "braycurtis"),
        f"{metric!r} by brute force depends on the float width of the data in a way of its own",
        "fit it with algorithm='ball_tree'",
    )
    settings = fit.effective_metric_params_
    weights = settings.get("w") if metric == "minkowski" else settings.get("V")
    if metric == "seuclidean" and weights is None:
        weights = np.var(points, axis=0, ddof=1)
    factors = np.asarray([] if weights is None else weights, np.float64)
    return _same(
        to.doubles(x).distances(points, metric, p=float(settings.get("p", 2.0)), weights=factors)
    )


_METRICS = "use one of " + ", ".join(METRICS) + " or cosine"


def _same(distances: Flow) -> Reach:
    return Reach(distances, distances, squared=False)


def fitted_points(points: NDArray[Any], to: Importer) -> Any:
    """Training points as a matrix of float32 or float64, sparse ones written out."""
    to.need(
        points.shape[0] * points.shape[1] <= MOST,
        f"{points.shape[0]} training points of {points.shape[1]} columns are too many to search",
    )
    dense = points.toarray() if hasattr(points, "toarray") else np.asarray(points)
    return dense if dense.dtype == np.float32 else dense.astype(np.float64)


def cosine_similarity(x: Flow, points: NDArray[Any]) -> Flow:
    """The cosine of the angle to each point; rows of zeros are at right angles to all."""
    lengths = np.sqrt(np.einsum("ij,ij->i", points, points))
    unit = points / np.where(lengths == 0, 1, lengths)[:, None].astype(points.dtype)
    # Normalizer divides by the same: a length of zero counts as one.
    return (x / x.norm("l2").one_if_tiny(10.0)).linear(unit, [])


def nearest(fit: Fitted, x: Flow, to: Importer, count: int) -> tuple[Flow, Flow]:
    """The numbers of the nearest training points, and their distances."""
    metric = "" if callable(fit.metric) else fit.effective_metric_
    found = _in_tree(fit, x, to, count, ALIASES.get(metric, metric))
    if found is not None:
        return found.select(np.arange(count)).cast("int64"), found.select(count + np.arange(count))
    reached = reach(fit, x, to)
    # Without a reduction of scikit-learn's for the metric, numpy chooses among equals.
    heap = metric not in ("precomputed", "cosine")
    places = reached.order.nearest(count, heap=heap)
    return places, reached.distances(reached.reported.gather(places))


def _in_tree(fit: Fitted, x: Flow, to: Importer, count: int, metric: str) -> Flow | None:
    """The numbers and the distances of the nearest points, from a tree that can be searched."""
    weighed = metric == "minkowski" and fit.effective_metric_params_.get("w") is not None
    if fit._fit_method not in ("kd_tree", "ball_tree") or metric not in REDUCED or weighed:
        return None
    ball, p = fit._fit_method == "ball_tree", float(fit.effective_metric_params_.get("p", 2.0))
    return tree_nearest(fit._tree, count, metric, p, ball=ball)(to.doubles(x))


def tree_nearest(tree: Any, count: int, metric: str, p: float, *, ball: bool) -> TreeNearest:
    """A search in a tree of scikit-learn's."""
    points, numbers, nodes, bounds = map(np.asarray, tree.get_arrays())
    sides = np.column_stack([bounds[0], nodes["radius"]]) if ball else np.hstack(list(bounds))
    ranges = np.column_stack([nodes["idx_start"], nodes["idx_end"], nodes["is_leaf"]])
    assert np.array_equal(ranges, tree_nodes(len(points), len(nodes))), "an unknown kind of tree"
    ordered = points[numbers].astype(np.float64)
    sides = sides.astype(np.float64)
    return TreeNearest(ordered, numbers.astype(np.int64), sides, count, metric, p=p, ball=ball)


def _uniform(fit: Fitted, to: Importer) -> bool:
    """True if all neighbours count the same (else by their closeness)."""
    to.need(not callable(fit.weights), "weights that are a Python function stay Python")
    return fit.weights in (None, "uniform")


# --- k neighbours ---------------------------------------------------------------------------------


@adapts("sklearn.neighbors.KNeighborsClassifier")
def _k_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    places, near = nearest(fit, x, to, fit.n_neighbors)
    weights = () if _uniform(fit, to) else (Closeness()(near),)
    codes = fit._y.reshape(len(fit._y), -1)
    votes = [
        Votes(len(names))(places.take(codes[:, k]), *weights)
        for k, names in enumerate(_all_classes(fit))
    ]
    shares = [item.share() for item in votes]
    from flour.ops.structure import Concat

    classes = _all_classes(fit)
    labels = [s.arg_max().take(c) for s, c in zip(shares, classes, strict=True)]
    if not fit.outputs_2d_:
        return {"label": labels[0], "probabilities": shares[0]}
    several = {f"probabilities_{k}": share for k, share in enumerate(shares)}
    return {"label": Concat()(*labels), **several}


def _all_classes(fit: Fitted) -> list[Any]:
    """The classes of every target."""
    return list(fit.classes_) if fit.outputs_2d_ else [fit.classes_]


@adapts("sklearn.neighbors.KNeighborsRegressor")
def _k_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    places, near = nearest(fit, x, to, fit.n_neighbors)
    rows = WeightedRows(fit._y.reshape(len(fit._y), -1))
    if _uniform(fit, to):
        value = rows(places).divide(float(fit.n_neighbors))
    else:
        weights = Closeness()(near)
        value = rows(places, weights) / weights.sum()
    return {"value": value.element(0) if fit._y.ndim == 1 else value}


@adapts("sklearn.neighbors.KNeighborsTransformer")
def _k_transformer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    by_distance = fit.mode == "distance"
    places, near = nearest(fit, x, to, fit.n_neighbors + by_distance)
    values = near if by_distance else places.fill(np.ones(fit.n_neighbors))
    return Scatter(fit.n_samples_fit_)(places, values)


# --- neighbours within a radius -------------------------------------------------------------------


def _within(fit: Fitted, x: Flow, to: Importer) -> tuple[Flow, Flow]:
    """1 for each training point within the radius, 0 for the others, and its distance."""
    reached = reach(fit, x, to)
    limit = float(fit.radius) ** 2 if reached.squared else float(fit.radius)
    return reached.order.binarize(limit).one_minus(), reached.distances(reached.reported)


def _radius_weights(fit: Fitted, x: Flow, to: Importer) -> tuple[Flow, Flow]:
    """The weight of every training point, zero outside the radius, and the number inside."""
    inside, distances = _within(fit, x, to)
    return inside if _uniform(fit, to) else Closeness()(distances, inside), inside.sum()


@adapts("sklearn.neighbors.RadiusNeighborsRegressor")
def _radius_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    weights, _ = _radius_weights(fit, x, to)
    targets = fit._y.reshape(len(fit._y), -1)
    # Without any neighbour this is 0 / 0: the library answers NaN too (and warns).
    value = weights.linear(targets.T.astype(np.float64), []) / weights.sum()
    if fit._y.dtype == np.float32 and _uniform(fit, to):
        value = value.cast("float32")
    return {"value": value.element(0) if fit._y.ndim == 1 else value}


@adapts("sklearn.neighbors.RadiusNeighborsClassifier")
def _radius_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    to.need(
        fit.outlier_label_ is not None,
        "without a label for outliers the library raises an error where there is no neighbour",
        "fit it with outlier_label=",
    )
    weights, count = _radius_weights(fit, x, to)
    alone = count.greater(0.0).cast("float64").one_minus()
    codes = fit._y.reshape(len(fit._y), -1)
    outputs: list[tuple[Flow, Flow]] = [
        _radius_target(weights, alone, codes[:, k], names, fit.outlier_label_[k])
        for k, names in enumerate(_all_classes(fit))
    ]
    if not fit.outputs_2d_:
        return {"label": outputs[0][0], "probabilities": outputs[0][1]}
    from flour.ops.structure import Concat

    several = {f"probabilities_{k}": share for k, (_, share) in enumerate(outputs)}
    return {"label": Concat()(*(label for label, _ in outputs)), **several}


def _radius_target(
    weights: Flow, alone: Flow, codes: NDArray[Any], classes: NDArray[Any], outlier: Any
) -> tuple[Flow, Flow]:
    """The label and the shares of one target; a row without neighbours gets the outlier's label."""
    chosen = (np.arange(len(classes))[:, None] == codes).astype(np.float64)
    lonely = (np.asarray(classes) == outlier).astype(np.float64)
    votes = weights.concat(alone).linear(np.column_stack([chosen, lonely]), [])
    shares = votes.share()
    named = np.append(np.asarray(classes), np.array([outlier]).astype(classes.dtype))
    return shares.concat(alone).arg_max().take(named), shares


@adapts("sklearn.neighbors.RadiusNeighborsTransformer")
def _radius_transformer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    inside, distances = _within(fit, x, to)
    return (inside * distances if fit.mode == "distance" else inside).to_sparse()


# --- outliers and centroids -----------------------------------------------------------------------


@adapts("sklearn.neighbors.LocalOutlierFactor")
def _local_outliers(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    to.need(fit.novelty, "it only scores its training data", "fit it with novelty=True")
    count = float(fit.n_neighbors_)
    places, near = nearest(fit, x, to, fit.n_neighbors_)
    near = near.cast_like(to.floats(x))
    reach = Maximum()(near, places.take(fit._distances_fit_X_[:, fit.n_neighbors_ - 1]))
    density = reach.sum().divide(count).add(1e-10).reciprocal()
    ratios = places.take(fit._lrd) / density
    scores = ratios.sum().divide(count).negate()
    if isinstance(fit.offset_, np.float64):
        scores = scores.cast("float64")
    scores = scores.subtract(float(fit.offset_))
    return {"label": scores.negate().greater(0.0).cast("int64").take([1, -1]), "scores": scores}


@adapts("sklearn.neighbors.NearestCentroid")
def _nearest_centroid(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    x = to.doubles(x)
    outputs: dict[str, Flow] = {}
    if fit.metric == "euclidean" and hasattr(fit, "within_class_std_dev_"):  # from 1.6 on
        scores = _centroid_scores(fit, x)
        logs = scores - scores.max()
        outputs |= of_logarithms(logs - logs.exp().sum().log())
        two = len(fit.classes_) == 2
        outputs["scores"] = scores.element(1) - scores.element(0) if two else scores
    return {"label": _centroid_label(fit, x), **outputs}


def _centroid_scores(fit: Fitted, x: Flow) -> Flow:
    """Minus the squared distance in units of the spread within classes, and the prior."""
    spread = np.where(fit.within_class_std_dev_ == 0, 1.0, fit.within_class_std_dev_)
    distances = x.divide(spread).squared_distances(fit.centroids_ / spread).sqrt()
    return distances.square().negate().add(2.0 * np.log(fit.class_prior_))


def _centroid_label(fit: Fitted, x: Flow) -> Flow:
    priors = getattr(fit, "class_prior_", 1 / len(fit.classes_))
    if np.isclose(priors, 1 / len(fit.classes_)).all():
        near = fit.metric == "euclidean"
        distances = (
            x.squared_distances(fit.centroids_)
            if near
            else x.distances(fit.centroids_, "manhattan")
        )
        return distances.arg_min().take(fit.classes_)
    if fit.metric == "euclidean":
        return _centroid_scores(fit, x).arg_max().take(fit.classes_)
    spread = np.where(fit.within_class_std_dev_ == 0, 1.0, fit.within_class_std_dev_)
    distances = x.divide(spread).distances(fit.centroids_ / spread, "manhattan")
    scores = distances.square().negate().add(2.0 * np.log(fit.class_prior_))
    return scores.arg_max().take(fit.classes_)


declines(
    "refused: it has no prediction and no transform for new rows",
    "sklearn.neighbors.NearestNeighbors",
    "sklearn.neighbors.KernelDensity",
)
