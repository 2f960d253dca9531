"""Committees: voting, stacking, bagging and boosting over any estimators that can be imported."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.types import INTS, Scalar, Vector
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.nearest import Maximum
from flour.ops.structure import Take, TakeText
from flour.sklearn.estimators.compose import beside


def members(fit: Fitted, x: Flow, to: Importer, *, named: bool = False) -> list[dict[str, Flow]]:
    """The outputs of every fitted child."""
    names = [f"estimators_[{i}]" for i in range(len(fit.estimators_))]
    if named:
        names = [name for name, child in fit.estimators if not isinstance(child, str)]
    return [to.predict(child, x, name) for child, name in zip(fit.estimators_, names, strict=True)]


# --- voting -----------------------------------------------------------------------------------


@adapts("sklearn.ensemble.VotingClassifier")
def _voting_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    children = members(fit, x, to, named=True)
    if fit.voting == "soft":
        each = [child["probabilities"] for child in children]
        average = _average(each, fit._weights_not_none)
        outputs = {"label": average.arg_max().take(fit.classes_), "probabilities": average}
        # Unflattened, transform returns three dimensions, which no column has.
        return {**outputs, "features": beside(each, x, to)} if fit.flatten_transform else outputs
    votes = beside([child["label"] for child in children], x, to)
    weights = fit._weights_not_none or [1.0] * len(children)
    counts = votes.tally(weights, np.zeros(len(children)), len(fit.classes_))
    return {"label": counts.arg_max().take(fit.classes_), "features": votes}


@adapts("sklearn.ensemble.VotingRegressor")
def _voting_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    children = members(fit, x, to, named=True)
    each = beside([child["value"] for child in children], x, to)
    weights = fit._weights_not_none
    if weights is None:
        value = each.as_float().sum() / float(len(children))
    else:
        value = each.cast("float64").multiply(weights).sum() / float(np.sum(weights))
    return {"value": value, "features": each}


def _average(flows: Sequence[Flow], weights: Sequence[float] | None) -> Flow:
    """The mean of vectors in numpy's order: weigh, add one after another, divide once."""
    if weights is None:
        return reduce(add, flows) / float(len(flows))
    weighed = [
        flow.cast("float64") * float(weight) for flow, weight in zip(flows, weights, strict=True)
    ]
    return reduce(add, weighed) / float(np.sum(weights))


# --- stacking ---------------------------------------------------------------------------------


@adapts("sklearn.ensemble.StackingClassifier")
def _stacking_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    several = isinstance(fit._label_encoder, list)
    to.need(not several, "a StackingClassifier of several targets is not imported")
    meta = _meta(fit, x, to)
    final = to.predict(fit.final_estimator_, meta, "final_estimator_")
    outputs = {"label": final["label"].take(fit.classes_), "features": meta}
    return outputs | {name: final[name] for name in ("probabilities", "scores") if name in final}


@adapts("sklearn.ensemble.StackingRegressor")
def _stacking_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    meta = _meta(fit, x, to)
    final = to.predict(fit.final_estimator_, meta, "final_estimator_")
    return {"value": final["value"], "features": meta}


def _meta(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The input of the final estimator: the children's answers, and x itself with passthrough."""
    children = members(fit, x, to, named=True)
    classes = getattr(fit, "classes_", ())
    parts = [
        part
        for child, method in zip(children, fit.stack_method_, strict=True)
        for part in _answers(child, method, len(classes), to)
    ]
    return beside([*parts, to.matrix(x)] if fit.passthrough else parts, x, to)


def _answers(outputs: dict[str, Flow], method: str, classes: int, to: Importer) -> list[Flow]:
    """The columns that one child contributes."""
    if method == "predict":
        answer = outputs["value"] if "value" in outputs else outputs["label"]
        numbers = not isinstance(answer.type, Scalar | Vector) or answer.type.dtype != "string"
        to.need(numbers, "a child that stacks string labels is not imported", "encode the labels")
        return [answer]
    if method == "decision_function":
        return [outputs["scores"]]
    if "probabilities" not in outputs:
        several = [flow for name, flow in outputs.items() if name.startswith("probabilities_")]
        return [_without_first(flow) for flow in several]
    return [_without_first(outputs["probabilities"]) if classes == 2 else outputs["probabilities"]]


def _without_first(probabilities: Flow) -> Flow:
    kind = probabilities.type
    assert isinstance(kind, Vector)
    return probabilities.select(np.arange(1, kind.width))


# --- bagging ----------------------------------------------------------------------------------


def _bagged(fit: Fitted, x: Flow, to: Importer) -> list[dict[str, Flow]]:
    """The outputs of every child on the columns it was given."""
    x = to.matrix(x)
    children = []
    everything = list(range(fit.n_features_in_))
    for i, (child, features) in enumerate(
        zip(fit.estimators_, fit.estimators_features_, strict=True)
    ):
        part = x if list(features) == everything else x.select(features)
        children.append(to.predict(child, part, f"estimators_[{i}]"))
    return children


@adapts(
    "sklearn.ensemble.BaggingClassifier",
    "imblearn.ensemble.BalancedBaggingClassifier",
    "imblearn.ensemble.EasyEnsembleClassifier",
)
def _bagging_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    children, count = _bagged(fit, x, to), len(fit.classes_)
    each = [
        _of_all_classes(outputs, child, count, x)
        for outputs, child in zip(children, fit.estimators_, strict=True)
    ]
    probabilities = reduce(add, each) / float(fit.n_estimators)
    result = {"label": probabilities.arg_max().take(fit.classes_), "probabilities": probabilities}
    if hasattr(fit.estimator_, "predict_log_proba"):
        logs = [
            _of_all_classes({"probabilities": own}, child, count, x, -np.inf)
            for outputs, child in zip(children, fit.estimators_, strict=True)
            for own in [outputs.get("log_probabilities", outputs["probabilities"].log())]
        ]
        top = reduce(Maximum(), logs).clip([np.finfo(np.float64).min], [np.inf])
        total = reduce(add, [(each - top).exp() for each in logs])
        result["log_probabilities"] = (total.log() + top).subtract(np.log(fit.n_estimators))
    # The library's own decision_function fails where a child never saw one of the classes.
    complete = all(len(child.classes_) == count for child in fit.estimators_)
    if hasattr(fit, "decision_function") and complete:
        scores = reduce(add, [child["scores"] for child in children])
        result["scores"] = scores / float(fit.n_estimators)
    return result


def _of_all_classes(
    outputs: dict[str, Flow], child: Fitted, count: int, x: Flow, unseen: float = 0.0
) -> Flow:
    """A child's probabilities in float64, `unseen` for classes unknown to it; else its one vote."""
    if "probabilities" not in outputs:
        return outputs["label"].as_vector().tally([1.0], [0.0], count)
    shares = outputs["probabilities"].cast("float64")
    seen = list(child.classes_)
    if len(seen) == count:
        return shares
    columns = [seen.index(c) if c in seen else len(seen) for c in range(count)]
    return shares.concat(x.fill([unseen])).select(columns)


@adapts("sklearn.ensemble.BaggingRegressor")
def _bagging_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    values = [child["value"].as_float() for child in _bagged(fit, x, to)]
    return {"value": reduce(add, values) / float(fit.n_estimators)}


# --- boosting ---------------------------------------------------------------------------------


@adapts("sklearn.ensemble.AdaBoostClassifier", "imblearn.ensemble.RUSBoostClassifier")
def _ada_boost_classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    count = len(fit.classes_)
    to.need(count > 1, "AdaBoostClassifier of one class is not imported")
    weights = np.asarray(fit.estimator_weights_[: len(fit.estimators_)], np.float64)
    children = members(fit, x, to)
    if getattr(fit, "algorithm", None) == "SAMME.R" and (weights == 1).all():  # to 1.5
        total = reduce(add, [_leanings(child["probabilities"], count) for child in children])
    else:
        votes = beside([codes(child["label"], fit.classes_, to) for child in children], x, to)
        # To 1.2, a vote for one class was none against the others.
        against = weights * 0.0 if to.fitted < (1, 3) else -1 / (count - 1) * weights
        total = votes.tally(weights, against, count)
    scores = total / float(fit.estimator_weights_.sum())
    if count > 2:
        return to.classifier(fit.classes_, scores, (scores / float(count - 1)).softmax())
    # The second class's score minus the first's, as the library folds two columns into one.
    single = scores.element(1) - scores.element(0)
    halves = (-single).concat(single) / 2.0
    label = single.greater([0.0]).cast("int64").take(fit.classes_)
    return {"label": label, "probabilities": halves.softmax(), "scores": single}


def _leanings(shares: Flow, count: int) -> Flow:
    """The leaning of a child's probabilities to each class (SAMME.R)."""
    assert isinstance(shares.type, Vector)
    tiny = np.finfo(shares.type.dtype).eps
    logs = shares.clip([tiny], [np.inf]).log()
    return (logs - logs.sum() * (1.0 / count)) * float(count - 1)


@adapts("sklearn.ensemble.AdaBoostRegressor")
def _ada_boost_regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    children = members(fit, x, to)
    values = beside([child["value"] for child in children], x, to)
    return {"value": values.weighted_median(fit.estimator_weights_[: len(children)])}


def codes(label: Flow, classes: NDArray[Any], to: Importer) -> Flow:
    """The class numbers behind a label: its index in `classes`, for labels of any type."""
    op = label.node.op
    to.need(
        isinstance(op, Take | TakeText),
        f"the labels of this child end in {op.name}, not in a table of classes",
    )
    assert isinstance(op, Take | TakeText)
    values = op.table.to_list() if isinstance(op, TakeText) else op.table.array.tolist()
    labels = np.asarray(classes).tolist()
    numbers = [labels.index(value) for value in values]
    number = label.input(0)
    kind = number.type
    assert isinstance(kind, Scalar | Vector)
    if numbers == list(range(len(numbers))) and kind.dtype in INTS:
        return number
    return number.take(np.asarray(numbers, np.int64))
