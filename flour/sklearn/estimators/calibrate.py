"""Calibrated classifiers: the scores of other classifiers, mapped to probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.types import Vector
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.interpolate import isotonic
from flour.ops.structure import Concat
from flour.sklearn.versions import renewed


@adapts("sklearn.calibration.CalibratedClassifierCV")
def _calibrated(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    each = [_member(renewed(item), x, to) for item in fit.calibrated_classifiers_]
    total = each[0]
    for other in each[1:]:
        total = total + other
    mean = total.divide(float(len(each)))
    return {"label": mean.arg_max().take(fit.classes_), "probabilities": mean}


def _member(item: Fitted, x: Flow, to: Importer) -> Flow:
    """The probabilities of one classifier and its calibrators."""
    outputs = to.predict(item.estimator, x, type(item.estimator).__name__)
    to.need(
        "scores" in outputs or "probabilities" in outputs,
        f"{type(item.estimator).__name__} has neither scores nor probabilities to calibrate",
    )
    shares = _tempered(item, outputs) if item.method == "temperature" else _curved(item, outputs)
    # The library cuts shares that rounding put above one.
    return shares.clip(-np.inf, 1.0)


# --- one curve a class ----------------------------------------------------------------------------


def _curved(item: Fitted, outputs: dict[str, Flow]) -> Flow:
    """A sigmoid or an isotonic curve for each class that the classifier knows."""
    # Of a classifier that was fitted before, 0.22 has them elsewhere.
    classes = item.label_encoder_.classes_ if item.classes is None else item.classes
    numbers = np.searchsorted(classes, item.estimator.classes_)
    if len(classes) == 2:
        second = _curve(item.calibrators[0], _second(outputs))
        return second.one_minus().concat(second)
    columns = _columns(item, outputs)
    curves = [_curve(c, column) for c, column in zip(item.calibrators, columns, strict=False)]
    return _in_place(curves, numbers, len(classes)).proportions()


def _second(outputs: dict[str, Flow]) -> Flow:
    """The output of a classifier of two classes for the second."""
    return outputs["scores"] if "scores" in outputs else outputs["probabilities"].element(1)


def _columns(item: Fitted, outputs: dict[str, Flow]) -> list[Flow]:
    """The output of the classifier for each class, one flow per calibrator."""
    if len(item.estimator.classes_) == 2:
        return [_second(outputs)]
    values = outputs.get("scores", outputs.get("probabilities"))
    assert values is not None, "checked by the caller"
    return [values.element(k) for k in range(len(item.estimator.classes_))]


def _curve(calibrator: Fitted, x: Flow) -> Flow:
    if hasattr(calibrator, "X_thresholds_"):
        return isotonic(calibrator, x.cast(str(calibrator.X_thresholds_.dtype.name))).cast(
            "float64"
        )
    slope, offset = float(calibrator.a_), float(calibrator.b_)
    return x.cast("float64").multiply(slope).add(offset).negate().sigmoid()


def _in_place(curves: list[Flow], numbers: NDArray[Any], classes: int) -> Flow:
    """The curves at the numbers of their classes; a class without a curve gets zero."""
    nothing = curves[0].fill([0.0], scalar=True)
    column = {int(number): curve for number, curve in zip(numbers, curves, strict=False)}
    return Concat()(*(column.get(k, nothing) for k in range(classes)))


# --- one temperature for all ----------------------------------------------------------------------


def _tempered(item: Fitted, outputs: dict[str, Flow]) -> Flow:
    """Softmax at another temperature."""
    logits, beta = _logits(outputs), item.calibrators[0].beta_
    if np.asarray(beta).dtype == np.float64:
        logits = logits.cast("float64")
    return logits.multiply(float(beta)).softmax().cast("float64")


def _logits(outputs: dict[str, Flow]) -> Flow:
    """Scores unchanged, probabilities by their logarithm.

    The library tells them apart by looking at all rows at once; scores that happen to look like
    probabilities in every row are not expected here.
    """
    if "scores" not in outputs:
        return outputs["probabilities"].add(1e-12).log()
    scores = outputs["scores"]
    return scores if isinstance(scores.type, Vector) else scores.negate().concat(scores)
