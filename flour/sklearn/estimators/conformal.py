"""Conformal predictors of MAPIE and crepes: intervals and sets beside the answers of a model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flour.core.errors import ParameterError
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow

#: The confidence of crepes, which has it as an argument of each call, by default.
_CREPES = 0.95
#: MAPIE takes classes into a set that miss its bound by so little.
_MAPIE_SLACK = 1e-8


def conformal_quantile(scores: ArrayLike, coverage: object) -> float:
    """The score that new ones exceed in at most `1 - coverage` of cases, from held-out scores."""
    ordered = np.sort(np.ravel(scores))
    if not isinstance(coverage, int | float | np.floating) or not 0 < coverage < 1:
        raise ParameterError("a coverage is between 0 and 1", found=repr(coverage)[:80])
    place = math.ceil((len(ordered) + 1) * coverage - 1e-9)
    if place > len(ordered):
        raise ParameterError(
            "so few rows do not show such a coverage",
            found=f"{len(ordered)} rows for {coverage:.4g}",
            hint=f"{math.ceil(coverage / (1 - coverage) - 1e-9)} rows or more",
        )
    return float(ordered[place - 1])


def with_interval(outputs: dict[str, Flow], widths: NDArray[np.float64]) -> dict[str, Flow]:
    """The outputs of a regressor, and the ends of an interval, or of one for each width."""
    value = outputs["value"]
    if len(widths) > 1:
        value = value.as_vector().select(np.zeros(len(widths), np.int64))
    width: Any = widths if len(widths) > 1 else float(widths[0])
    return {**outputs, "lower": value.subtract(width), "upper": value.add(width)}


def with_set(outputs: dict[str, Flow], bound: float, slack: float = 0.0) -> dict[str, Flow]:
    """The outputs of a classifier, and for each class if it is in the set."""
    beyond = outputs["probabilities"].one_minus().subtract(bound)
    return {**outputs, "set": beyond.less_equal(slack)}


@adapts("mapie.regression.regression.SplitConformalRegressor")
def _mapie_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    inner, kind = fit._mapie_regressor, type(fit._conformity_score).__name__
    to.need(kind == "AbsoluteConformityScore", f"intervals by {kind} depend on the row")
    scores = inner.conformity_scores_
    widths = np.array([conformal_quantile(scores, 1 - alpha) for alpha in fit._alphas])
    return with_interval(to.predict(inner.estimator, x, "estimator"), widths)


@adapts("mapie.classification.SplitConformalClassifier")
def _mapie_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    inner = fit._mapie_classifier
    kind = type(inner.conformity_score_function_).__name__
    bounds = np.ravel(inner.conformity_score_function_.quantiles_)
    to.need(kind == "LACConformityScore", f"sets by {kind} depend on the order of classes")
    to.need(len(bounds) == 1, f"sets at {len(bounds)} levels are not one output")
    return with_set(to.predict(inner.estimator, x, "estimator"), float(bounds[0]), _MAPIE_SLACK)


@adapts("crepes.base.WrapRegressor")
def _crepes_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    outputs = to.predict(fit.learner, x, "learner")
    inner = fit.cr
    if inner is None:
        return outputs
    to.need(not inner.normalized, "intervals by difficulty need the estimates of each call")
    to.need(not inner.mondrian, "intervals by category need the categories of each call")
    # Descending, as the library keeps them, and cut as it cuts.
    place = int((1 - _CREPES) * (len(inner.alphas) + 1)) - 1
    to.need(place >= 0, f"so few rows were held out that no interval has {_CREPES:.0%}")
    return with_interval(outputs, np.array([inner.alphas[place]]))
