"""The scikit-learn wrappers of LightGBM and XGBoost, inside pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flour.core.adapters import adapts
from flour.core.types import Vector

if TYPE_CHECKING:
    from flour.language.flow import Flow
    from flour.sklearn.importer import Importer


@adapts("lightgbm.sklearn.LGBMRegressor", "lightgbm.sklearn.LGBMRanker")
def _lightgbm(fit: Any, x: Flow, to: Importer) -> dict[str, Flow]:
    return {"value": _lightgbm_answers(fit, x, to)[0]}


@adapts("lightgbm.sklearn.LGBMClassifier")
def _lightgbm_classifier(fit: Any, x: Flow, to: Importer) -> dict[str, Flow]:
    value, scores = _lightgbm_answers(fit, x, to)
    outputs = _classified(fit, value, to)
    return {**outputs, "scores": scores} if hasattr(fit, "decision_function") else outputs


def _lightgbm_answers(fit: Any, x: Flow, to: Importer) -> tuple[Flow, Flow]:
    """The booster's answer, and its raw scores."""
    from flour.boosters import lightgbm

    head, trees = lightgbm.parse(lightgbm.text_of(fit))
    scores, _ = lightgbm.scores_of(head, trees, lightgbm.columns(head, x, to))
    return lightgbm.answered(head, trees, scores), lightgbm.flat(scores)


@adapts("xgboost.sklearn.XGBRegressor", "xgboost.sklearn.XGBRFRegressor")
@adapts("xgboost.sklearn.XGBRanker")
def _xgboost(fit: Any, x: Flow, to: Importer) -> dict[str, Flow]:
    return {"value": _xgboost_value(fit, x, to)}


@adapts("xgboost.sklearn.XGBClassifier", "xgboost.sklearn.XGBRFClassifier")
def _xgboost_classifier(fit: Any, x: Flow, to: Importer) -> dict[str, Flow]:
    value = _xgboost_value(fit, x, to)
    if isinstance(value.type, Vector) and fit.n_classes_ == 2:  # a label of its own each column
        return {"label": value.greater([0.5]).cast("float64"), "probabilities": value}
    outputs = _classified(fit, value, to)
    if fit.objective != "multi:softmax":
        return outputs
    # The library returns its booster's labels, whole numbers of another width.
    return {**outputs, "label": outputs["label"].cast("int32")}


def _xgboost_value(fit: Any, x: Flow, to: Importer) -> Flow:
    from flour.boosters import xgboost

    model = xgboost.parse(fit)
    # Training that stopped early answers with its best round, through the wrapper only.
    best = fit.get_booster().attr("best_iteration")
    rounds = None if best is None else int(best) + 1
    columns = _marked(fit, xgboost.columns(model, x, to).cast("float32"), to)
    # The wrappers call inplace_predict, which rounds the margins of DART otherwise.
    scores, _ = xgboost.scores_of(model, columns, rounds, in_place=True)
    if model.objective == "multi:softmax":
        return scores.softmax()
    return xgboost.converted(model, scores)


def _marked(fit: Any, x: Flow, to: Importer) -> Flow:
    """x with NaN for the number that the wrapper takes for missing; NaN itself always is."""
    if np.isnan(fit.missing):
        return x
    kind, marker = x.type, np.float32(fit.missing)
    numbers = "c" not in (fit.get_booster().feature_types or ())
    to.need(numbers, f"missing={fit.missing} beside categories", "train with missing=NaN")
    assert isinstance(kind, Vector)
    if kind.sparse and marker == 0:
        return x  # zeros of sparse rows are missing, stored or not
    return x.impute(float(marker), np.full(kind.width, np.nan, np.float32))


def _classified(fit: Any, value: Flow, to: Importer) -> dict[str, Flow]:
    """Labels from the booster's answer: a probability, or one for each class."""
    many = isinstance(value.type, Vector)
    to.need(not many or fit.n_classes_ > 2, "a classifier whose booster has several targets")
    if many:
        return {"label": value.arg_max().take(fit.classes_), "probabilities": value}
    index = value.greater([0.5]).cast("int64")
    both = value.one_minus().concat(value)
    return {"label": index.take(fit.classes_), "probabilities": both}
