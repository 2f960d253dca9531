"""The columns that scikit-learn's selectors keep, by their fitted attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.language.adapters import Fitted

Mask = NDArray[np.bool_]
Fit = Mapping[str, Any]


def selected(name: str, fit: Fit) -> Mask:
    """The mask of the columns that a selector of this class keeps."""
    if name == "GenericUnivariateSelect":
        way, parameter = _MODES[fit["mode"]]
        return way({**fit, parameter: fit["param"]})
    if "support_" in fit:
        return np.asarray(fit["support_"], bool)
    if name not in _WAYS:
        raise AttributeError(f"the columns that a {name} keeps are not known from its file")
    return _WAYS[name](fit)


def _scores(fit: Fit) -> NDArray[Any]:
    """The scores, the lowest of all where there is none."""
    scores = np.asarray(fit["scores_"], np.result_type(fit["scores_"], np.float32))
    return np.where(np.isnan(scores), np.finfo(scores.dtype).min, scores)


def _best(fit: Fit) -> Mask:
    count = len(fit["scores_"]) if fit["k"] == "all" else int(fit["k"])
    kept = np.zeros(len(fit["scores_"]), bool)
    if count:
        kept[np.argsort(_scores(fit), kind="mergesort")[-count:]] = True
    return kept


def _percentile(fit: Fit) -> Mask:
    scores, share = _scores(fit), fit["percentile"]
    if share in (0, 100):
        return np.full(len(scores), share == 100)
    limit = np.percentile(scores, 100 - share)
    kept: Mask = scores > limit
    ties = np.flatnonzero(scores == limit)
    kept[ties[: int(len(scores) * share / 100) - int(kept.sum())]] = True
    return kept


def _false_positives(fit: Fit) -> Mask:
    return np.asarray(fit["pvalues_"] < fit["alpha"])


def _false_discoveries(fit: Fit) -> Mask:
    chances = np.sort(fit["pvalues_"])
    count = len(chances)
    low = chances[chances <= float(fit["alpha"]) / count * np.arange(1, count + 1)]
    return np.asarray(fit["pvalues_"] <= low.max()) if len(low) else np.zeros(count, bool)


def _family_errors(fit: Fit) -> Mask:
    return np.asarray(fit["pvalues_"] < fit["alpha"] / len(fit["pvalues_"]))


def _varying(fit: Fit) -> Mask:
    return np.asarray(fit["variances_"] > fit["threshold"])


def _important(fit: Fit) -> Mask:
    """By coefficients, or by the importances of trees."""
    inner = fit.get("estimator_", fit["estimator"])
    getter = fit.get("importance_getter", "auto")
    if getter not in ("auto", "coef_", "feature_importances_"):
        raise AttributeError("the importances of this estimator are not in its file")
    weights = np.abs(inner.coef_ if "coef_" in vars(inner) else _importances(inner))
    if weights.ndim > 1:
        weights = np.linalg.norm(weights, axis=0, ord=fit["norm_order"])
    kept: Mask = weights >= _limit(inner, weights, fit["threshold"])
    most = fit.get("max_features_", fit.get("max_features"))
    if most is not None:
        best = np.argsort(-weights, kind="mergesort")[:most]
        kept &= np.isin(np.arange(len(weights)), best)
    return kept


def _importances(inner: Fitted) -> NDArray[np.float64]:
    """The importances of trees, as scikit-learn sums them up."""
    own = vars(inner)
    if "estimator_weights_" in own:
        weighted = zip(own["estimator_weights_"], own["estimators_"], strict=False)
        total: Any = sum(weight * _importances(each) for weight, each in weighted)
        return np.asarray(total / own["estimator_weights_"].sum())
    if "tree_" in own:
        return _gains(own["tree_"], inner.n_features_in_, share=True)
    trees = [each.tree_ for each in np.ravel(own.get("estimators_", ())) if "tree_" in vars(each)]
    if not trees:
        return np.asarray(inner.feature_importances_)  # of a stand-in that knows them, or an error
    share, grown = "init_" not in own, [tree for tree in trees if tree.node_count > 1]
    each = [_gains(tree, inner.n_features_in_, share=share) for tree in grown]
    mean = np.mean(each, axis=0) if each else np.zeros(inner.n_features_in_)
    return mean / mean.sum() if each else mean


def _gains(tree: Fitted, width: int, *, share: bool) -> NDArray[np.float64]:
    """How much impurity the splits on each column take away, as shares of their sum or not."""
    weighted = tree.weighted_n_node_samples * tree.impurity
    inner = np.flatnonzero(tree.children_left >= 0)
    left, right = tree.children_left[inner], tree.children_right[inner]
    taken = weighted[inner] - weighted[left] - weighted[right]
    sums: Any = np.bincount(tree.feature[inner], taken, width)
    gains: NDArray[np.float64] = sums / tree.weighted_n_node_samples[0]
    return gains / gains.sum() if share and gains.sum() > 0 else gains


def _limit(inner: object, weights: NDArray[Any], threshold: float | str | None) -> float:
    own = vars(inner)
    if threshold is None:
        name = type(inner).__name__
        sparse = "Lasso" in name or own.get("penalty") == "l1"
        if "ElasticNet" in name or own.get("penalty") == "elasticnet":
            sparse = bool(np.isclose(own.get("l1_ratio_", own.get("l1_ratio")) or 0.0, 1.0))
        threshold = 1e-5 if sparse else "mean"
    if not isinstance(threshold, str):
        return float(threshold)
    scale, _, reference = threshold.replace(" ", "").rpartition("*")
    middle = float(np.median(weights) if reference == "median" else np.mean(weights))
    return middle * float(scale or 1.0)


_WAYS: dict[str, Callable[[Fit], Mask]] = {
    "SelectKBest": _best,
    "SelectPercentile": _percentile,
    "SelectFpr": _false_positives,
    "SelectFdr": _false_discoveries,
    "SelectFwe": _family_errors,
    "SelectFromModel": _important,
    "VarianceThreshold": _varying,
}
_MODES: dict[str, tuple[Callable[[Fit], Mask], str]] = {
    "percentile": (_percentile, "percentile"),
    "k_best": (_best, "k"),
    "fpr": (_false_positives, "alpha"),
    "fdr": (_false_discoveries, "alpha"),
    "fwe": (_family_errors, "alpha"),
}
