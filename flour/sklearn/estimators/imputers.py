"""Imputers and indicators of missing values."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.core.types import Vector
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.adapters import public_name as name_of
from flour.language.flow import Flow
from flour.ops.categories import pick, text_columns
from flour.ops.impute import EITHER, NAN, NONE, TEXT, ImputeText, IsMissingText
from flour.ops.require import RequireAny, RequirePresent
from flour.ops.structure import Bundle


@adapts("sklearn.impute.SimpleImputer")
def _simple_imputer(fit: Fitted, x: Flow, to: Importer) -> Flow:
    statistics = np.asarray(fit.statistics_)
    columns = np.arange(len(statistics))
    present = statistics == statistics  # noqa: PLR0124 (no NaN)
    if not fit.keep_empty_features and not np.all(present):
        columns = np.flatnonzero(present)
    kinds = text_columns(x)
    if not any(kinds):
        source = to.matrix(x)
        source = source if fit.strategy in ("most_frequent", "constant") else source.as_float()
        numbers = statistics[columns].astype(np.float64)
        imputed = _kept(source, columns).impute(number_marker(fit.missing_values, to), numbers)
        return with_indicator(fit, imputed, source, to)
    to.need(not fit.add_indicator, "indicators beside strings have no common type", _INDICATOR)
    return _each_kind(fit, x, to, kinds, columns)


_INDICATOR = "impute the columns of strings and those of numbers apart"


def _kept(x: Flow, columns: Any) -> Flow:
    whole = isinstance(x.type, Vector) and x.type.width == len(columns)
    return x if whole else x.select(columns)


def _each_kind(fit: Fitted, x: Flow, to: Importer, kinds: list[bool], columns: Any) -> Flow:
    """Strings, or strings and numbers: each run of columns of one kind is filled by itself."""
    pieces: list[Flow] = []
    start = 0
    for end in range(1, len(columns) + 1):
        if end < len(columns) and kinds[columns[end]] == kinds[columns[start]]:
            continue
        run = columns[start:end]
        pieces.append(_filled(fit, pick(x, run), to, run, text=kinds[columns[start]]))
        start = end
    if len(pieces) == 1:
        return pieces[0]
    return Bundle(tuple(f"x{j}" for j in range(len(columns))))(*pieces)


def _filled(fit: Fitted, x: Flow, to: Importer, columns: Any, *, text: bool) -> Flow:
    values = [fit.statistics_[j] for j in columns]
    x = x if isinstance(x.type, Vector) else x.as_vector()
    if not text:
        if any(isinstance(value, str) for value in values):
            fine = isinstance(x.type, Vector) and x.type.dtype == "bool"
            to.need(fine, "a column of numbers is filled with a string", _INDICATOR)
            return x  # a bool is never missing
        return x.impute(number_marker(fit.missing_values, to), np.array(values, np.float64))
    fine = all(isinstance(value, str) for value in values)
    to.need(fine, "a column of strings is filled with something that is no string")
    marker, marked = text_marker(fit.missing_values, to)
    return ImputeText(marker=marker, text=marked, values=values)(_marked_only(fit, x, marker))


def _marked_only(fit: Fitted, x: Flow, marker: str) -> Flow:
    """The strings; NaN is refused where it is not what marks missing ones, as by the original."""
    if marker in (NAN, EITHER):
        return x
    return RequirePresent(none=False, step=type(fit).__name__)(x)


def number_marker(missing: Any, to: Importer) -> float:
    """The marker of missing numbers: None and pandas' NA arrive as NaN."""
    if missing is None or type(missing).__name__ == "NAType":
        return float("nan")
    to.need(not isinstance(missing, str), f"numbers are never {missing!r}")
    return float(missing)


def text_marker(missing: object, to: Importer) -> tuple[str, list[str]]:
    """The marker of missing strings."""
    if isinstance(missing, str):
        return TEXT, [missing]
    if missing is None:
        return NONE, []
    if type(missing).__name__ == "NAType":
        return EITHER, []
    to.need(missing != missing, f"strings are never {missing!r}")  # noqa: PLR0124 (NaN is fine)
    return NAN, []


def with_indicator(fit: Fitted, imputed: Flow, source: Flow, to: Importer) -> Flow:
    """The imputed columns, and after them the flags of missing values, if the imputer adds them."""
    if not fit.add_indicator:
        return imputed
    marker = number_marker(fit.missing_values, to)
    return imputed.concat(_kept(source, fit.indicator_.features_).is_missing(marker))


@adapts("sklearn.impute.MissingIndicator")
def _missing_indicator(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(not fit._precomputed, "a precomputed mask is no input of a program")
    columns, kinds = [int(j) for j in fit.features_], text_columns(x)
    if not columns:
        flags = x.fill(np.zeros(0, np.bool_))
    elif not any(kinds):
        flags = _kept(to.matrix(x), columns).is_missing(number_marker(fit.missing_values, to))
    else:
        to.need(all(kinds[j] for j in columns), "one indicator for strings and numbers")
        part = pick(x, columns)
        marker, marked = text_marker(fit.missing_values, to)
        part = part if isinstance(part.type, Vector) else part.as_vector()
        flags = IsMissingText(marker=marker, text=marked)(_marked_only(fit, part, marker))
    if fit.sparse == "auto":
        return flags
    return flags.to_sparse() if fit.sparse else flags.to_dense()


# --- imputers that learn from the other columns ---------------------------------------------------


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
    x = RequireAny(type(fit).__name__)(x)  # alone, a row without any value skips the rounds
    steps, width = fit.imputation_sequence_, filled.type.width  # type: ignore[union-attr]  # a matrix
    # To 0.22, one number for all columns.
    bounds = (np.asarray(each, np.float64) for each in (fit._min_value, fit._max_value))
    low, high = (np.broadcast_to(each, width) for each in bounds)
    if all(name_of(type(step.estimator)) in _LINEAR for step in steps):
        weights = np.zeros((len(steps), width))
        for row, step in zip(weights, steps, strict=True):
            row[step.neighbor_feat_idx] = np.ravel(step.estimator.coef_)
        return x.impute_in_turn(
            filled,
            targets=np.array([step.feat_idx for step in steps], np.int64),
            weights=weights,
            biases=np.array([np.ravel(step.estimator.intercept_)[0] for step in steps], np.float64),
            low=low,
            high=high,
        )
    to.need(
        len(steps) <= _MOST_STEPS,
        f"{len(steps)} regressions in turn are too many that are not linear",
        "use a linear estimator, or a smaller max_iter",
    )
    made, anything = filled, x.is_nan().cast("int64").sum().less([width])
    for step in steps:
        target = int(step.feat_idx)
        made = _predicted(step, x, made, (low[target], high[target]), to)
    return anything.where(made, filled)


def _predicted(
    step: Fitted, x: Flow, made: Flow, limits: tuple[float, float], to: Importer
) -> Flow:
    """One column written anew, the others as they are."""
    target, width = int(step.feat_idx), made.type.width  # type: ignore[union-attr]  # a matrix
    name = f"imputation_sequence_[{target}]"
    value = to.predict(step.estimator, made.select(step.neighbor_feat_idx), name)["value"]
    value = value.as_float().clip([limits[0]], [limits[1]])
    missing = x.element(target).is_nan()
    column = missing.where(value.cast_like(made), made.element(target)).as_vector()
    parts = [column]
    if target > 0:
        parts.insert(0, made.select(np.arange(target)))
    if target + 1 < width:
        parts.append(made.select(np.arange(target + 1, width)))
    return parts[0].concat(*parts[1:])
