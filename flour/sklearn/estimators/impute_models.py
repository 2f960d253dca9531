"""Imputers that learn from the other columns: nearest rows, rounds of regression."""

from __future__ import annotations

import numpy as np

from flour.language.adapters import Fitted, Importer, adapts
from flour.language.adapters import public_name as name_of
from flour.language.flow import Flow
from flour.sklearn.estimators.imputers import number_marker, with_indicator


@adapts("sklearn.impute.KNNImputer")
def _knn_imputer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(fit.metric == "nan_euclidean", "the metric is Python code")
    to.need(fit.weights in ("uniform", "distance"), "the weights are Python code")
    source = to.floats(x)
    mask = np.asarray(fit._mask_fit_X)
    points = np.where(mask, np.nan, np.asarray(fit._fit_X, np.float64))
    valid = np.asarray(fit._valid_mask)
    means = np.zeros(len(valid))
    means[valid] = np.ma.array(fit._fit_X, mask=mask, dtype=np.float64)[:, valid].mean(axis=0)
    made = blanked(source, fit, to).impute_nearest(
        points, means, fit.n_neighbors, closeness=fit.weights == "distance"
    )
    if not valid.all():
        made = (
            made.multiply(valid.astype(np.float64))
            if fit.keep_empty_features
            else made.select(valid.nonzero()[0])
        )
    return with_indicator(fit, made, source, to)


def blanked(x: Flow, fit: Fitted, to: Importer) -> Flow:
    """x with NaN for whatever the imputer takes as missing."""
    marker = number_marker(fit.missing_values, to)
    return x if np.isnan(marker) else x.impute(marker, [np.nan])


#: Regressors whose prediction is a product with coef_ plus intercept_, and nothing else.
_LINEAR = frozenset(
    f"sklearn.linear_model.{name}"
    for name in (
        *("ARDRegression", "BayesianRidge", "ElasticNet", "ElasticNetCV", "HuberRegressor"),
        *("Lars", "LarsCV", "Lasso", "LassoCV", "LassoLars", "LassoLarsCV", "LassoLarsIC"),
        *("LinearRegression", "OrthogonalMatchingPursuit", "QuantileRegressor", "Ridge"),
        *("RidgeCV", "SGDRegressor", "TheilSenRegressor"),
    )
)
_MOST_STEPS = 128


@adapts("sklearn.impute.IterativeImputer")
def _iterative_imputer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(not fit.sample_posterior, "drawing from the posterior is random", "sample_posterior")
    empty = np.asarray(fit._is_empty_feature)
    to.need(
        not (empty.any() and fit.keep_empty_features),
        "a column without a value in training was kept",
        "keep_empty_features=False",
    )
    source = to.floats(x)
    filled = to.transform(fit.initial_imputer_, source, "initial_imputer_")
    present = blanked(source, fit, to)
    if empty.any():
        present = present.select(np.flatnonzero(~empty))
    made = filled if fit.n_iter_ == 0 else _rounds(fit, present, filled, to)
    return with_indicator(fit, made, source, to)


def _rounds(fit: Fitted, x: Flow, filled: Flow, to: Importer) -> Flow:
    steps = fit.imputation_sequence_
    if all(name_of(type(step.estimator)) in _LINEAR for step in steps):
        return _linear_rounds(fit, x, filled)
    to.need(
        len(steps) <= _MOST_STEPS,
        f"{len(steps)} regressions in turn are too many that are not linear",
        "use a linear estimator, or a smaller max_iter",
    )
    width = len(fit._min_value)
    made, anything = filled, x.is_nan().cast("int64").sum().less([width])
    for step in steps:
        made = _predicted(fit, step, x, made, to)
    return anything.where(made, filled)


def _predicted(fit: Fitted, step: Fitted, x: Flow, made: Flow, to: Importer) -> Flow:
    """One column written anew, the others as they are."""
    target, width = int(step.feat_idx), len(fit._min_value)
    name = f"imputation_sequence_[{target}]"
    value = to.predict(step.estimator, made.select(step.neighbor_feat_idx), name)["value"]
    value = value.as_float().clip([fit._min_value[target]], [fit._max_value[target]])
    missing = x.element(target).is_nan()
    column = missing.where(value.cast_like(made), made.element(target)).as_vector()
    parts = [column]
    if target > 0:
        parts.insert(0, made.select(np.arange(target)))
    if target + 1 < width:
        parts.append(made.select(np.arange(target + 1, width)))
    return parts[0].concat(*parts[1:])


def _linear_rounds(fit: Fitted, x: Flow, filled: Flow) -> Flow:
    steps, width = fit.imputation_sequence_, len(fit._min_value)
    weights = np.zeros((len(steps), width))
    for row, step in zip(weights, steps, strict=True):
        row[step.neighbor_feat_idx] = np.ravel(step.estimator.coef_)
    return x.impute_in_turn(
        filled,
        targets=np.array([step.feat_idx for step in steps], np.int64),
        weights=weights,
        biases=np.array([np.ravel(step.estimator.intercept_)[0] for step in steps], np.float64),
        low=np.asarray(fit._min_value, np.float64),
        high=np.asarray(fit._max_value, np.float64),
    )
