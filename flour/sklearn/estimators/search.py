"""Estimators that search for the best of others: at serving time only the best is used."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core import provenance
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow


@adapts(
    "sklearn.model_selection.GridSearchCV",
    "sklearn.model_selection.RandomizedSearchCV",
    "sklearn.model_selection.HalvingGridSearchCV",
    "sklearn.model_selection.HalvingRandomSearchCV",
)
def _search(fit: Fitted, x: Flow, to: Importer) -> Flow | dict[str, Flow]:
    to.need(fit.refit, "a search with refit=False keeps no estimator", "set refit=True")
    with provenance.step("best_estimator_"):
        return to.adapt(fit.best_estimator_, x)


@adapts("sklearn.model_selection.FixedThresholdClassifier")
def _fixed_threshold(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    child = getattr(fit, "estimator_", fit.estimator)
    outputs = to.predict(child, x, "estimator_")
    scores, method = _confidence(fit, outputs, child.classes_, fit.pos_label, to)
    automatic = 0.5 if method == "probabilities" else 0.0
    threshold = automatic if fit.threshold == "auto" else fit.threshold
    return _decided(outputs, scores, threshold, child.classes_, fit.pos_label)


@adapts("sklearn.model_selection.TunedThresholdClassifierCV")
def _tuned_threshold(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    outputs = to.predict(fit.estimator_, x, "estimator_")
    positive = fit._curve_scorer._get_pos_label()
    scores, _ = _confidence(fit, outputs, fit.classes_, positive, to)
    return _decided(outputs, scores, fit.best_threshold_, fit.classes_, positive)


def _confidence(
    fit: Fitted, outputs: dict[str, Flow], classes: NDArray[Any], positive: object, to: Importer
) -> tuple[Flow, str]:
    """The child's confidence in the positive class, and the output that it is taken from."""
    response_outputs = {"auto": ("probabilities", "scores"), "predict_proba": ("probabilities",)}
    names = [n for n in response_outputs.get(fit.response_method, ("scores",)) if n in outputs]
    to.need(names, f"the estimator has no {fit.response_method}")
    is_class = positive is None or bool(np.any(classes == positive))
    to.need(is_class, f"pos_label={positive!r} is none of the classes", "fit it with one that is")
    column = 1 if positive is None else int(np.flatnonzero(classes == positive)[0])
    if names[0] == "probabilities":
        return outputs["probabilities"].element(column), names[0]
    return (outputs["scores"] if column else -outputs["scores"]), names[0]


#: Outputs that a threshold leaves as they are.
_KEPT = ("probabilities", "log_probabilities", "scores")


def _decided(
    outputs: dict[str, Flow],
    scores: Flow,
    threshold: float,
    classes: NDArray[Any],
    positive: object,
) -> dict[str, Flow]:
    """The child's outputs with the label that the threshold gives."""
    reached = scores.cast("float64").greater_equal([threshold])
    order = [0, 1]
    if positive is not None:
        order = [
            int(np.flatnonzero(test)[0]) for test in (classes != positive, classes == positive)
        ]
    label = reached.cast("int64").take(np.asarray(classes)[order])
    return {"label": label} | {name: outputs[name] for name in _KEPT if name in outputs}
