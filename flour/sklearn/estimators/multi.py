"""Several targets, chains of targets, and many classes out of two-class estimators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from flour.core.types import Scalar, Vector
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.sklearn.estimators.compose import beside
from flour.sklearn.estimators.ensemble import members

Outputs: TypeAlias = "dict[str, Flow]"


# --- several targets --------------------------------------------------------------------------


@adapts("sklearn.multioutput.MultiOutputRegressor")
def _multi_regressor(fit: Fitted, x: Flow, to: Importer) -> Outputs:
    return {"value": beside([child["value"] for child in members(fit, x, to)], x, to)}


@adapts("sklearn.multioutput.MultiOutputClassifier")
def _multi_classifier(fit: Fitted, x: Flow, to: Importer) -> Outputs:
    children = members(fit, x, to)
    labels = [child["label"] for child in children]
    strings = {isinstance(f.type, Scalar | Vector) and f.type.dtype == "string" for f in labels}
    to.need(len(strings) == 1, "targets of strings and of numbers cannot share one array")
    outputs = {"label": beside(labels, x, to)}
    if all("probabilities" in child for child in children):
        outputs |= {
            f"probabilities_{i}": child["probabilities"] for i, child in enumerate(children)
        }
    return outputs


@adapts("sklearn.multioutput.RegressorChain")
def _regressor_chain(fit: Fitted, x: Flow, to: Importer) -> Outputs:
    children = _chain(fit, x, to, lambda child: child["value"])
    return {"value": _unordered(fit, [child["value"] for child in children])}


@adapts("sklearn.multioutput.ClassifierChain")
def _classifier_chain(fit: Fitted, x: Flow, to: Importer) -> Outputs:
    method = getattr(fit, "chain_method_", "predict")
    output_of = {
        "predict": "label",
        "predict_proba": "probabilities",
        "decision_function": "scores",
    }
    to.need(method in output_of, f"a chain by {method} is not imported")
    children = _chain(fit, x, to, lambda child: _second(child[output_of[method]], to))
    # The library collects its predictions in float64, labels too.
    return {
        name: _unordered(fit, [_second(child[name], to) for child in children])
        for name in ("label", "probabilities", "scores")
        if all(name in child for child in children)
    }


def _chain(fit: Fitted, x: Flow, to: Importer, answer: Callable[[Outputs], Flow]) -> list[Outputs]:
    """Every child's outputs on x and the answers of the children before it, in chain order."""
    inputs, children = to.doubles(x), []
    for i, child in enumerate(fit.estimators_):
        children.append(to.predict(child, inputs, f"estimators_[{i}]"))
        if i + 1 < len(fit.estimators_):
            inputs = inputs.concat(answer(children[-1]).cast("float64"))
    return children


def _second(x: Flow, to: Importer) -> Flow:
    """The column of the positive class where there are two."""
    if isinstance(x.type, Vector):
        to.need(x.type.width == 2, "a chain is imported for targets of two classes")
        return x.element(1)
    return x


def _unordered(fit: Fitted, flows: list[Flow]) -> Flow:
    """The children's answers in the order of the targets, as float64."""
    order = np.argsort(fit.order_)
    parts = [flows[int(i)].cast("float64") for i in order]
    return parts[0].concat(*parts[1:]) if len(parts) > 1 else parts[0].as_vector()


# --- many classes out of two ------------------------------------------------------------------


@adapts("sklearn.multiclass._ConstantPredictor")
def _constant(fit: Fitted, x: Flow, _to: Importer) -> Outputs:
    value = np.asarray(fit.y_).ravel()[:1]
    share = float(value[0])
    return {
        "label": x.fill(value, scalar=True),
        "scores": x.fill(value, scalar=True),
        "probabilities": x.fill([1 - share, share]),
    }


def _confidence(outputs: Outputs) -> Flow:
    """The confidence of a two-class estimator in its second class."""
    if "value" in outputs:
        return outputs["value"]
    return outputs["scores"] if "scores" in outputs else outputs["probabilities"].element(1)


def _limit(outputs: Outputs) -> list[float]:
    """The confidence above which the second class wins."""
    return [0.0] if "scores" in outputs else [0.5]


@adapts("sklearn.multiclass.OneVsRestClassifier")
def _one_vs_rest(fit: Fitted, x: Flow, to: Importer) -> Outputs:
    children = members(fit, x, to)
    confidence = beside([_confidence(child) for child in children], x, to)
    if fit.label_binarizer_.y_type_ == "multiclass":
        # Sums of leaves or votes may be equal for several classes.
        ties = any(
            "scores" not in child
            or any(item.op.name in {"Trees", "Tally"} for item in child["scores"].nodes())
            for child in children
        )
        if ties and to.fitted < (1, 8):  # the last one won
            backwards = np.arange(len(fit.classes_))[::-1]
            label = confidence.select(backwards).arg_max().take(fit.classes_[::-1])
        else:
            label = confidence.arg_max().take(fit.classes_)
    elif fit.multilabel_:
        to.need(not fit.label_binarizer_.sparse_input_, "sparse labels are not imported")
        label = confidence.greater(_limit(children[0])).cast("int64")
    else:
        above = confidence.element(0).greater(_limit(children[0]))
        label = above.cast("int64").take(fit.classes_)
    outputs = {"label": label}
    if hasattr(fit, "predict_proba"):
        each = [child["probabilities"].element(1) for child in children]
        shares = each[0].one_minus().concat(each[0]) if len(each) == 1 else beside(each, x, to)
        outputs["probabilities"] = shares if fit.multilabel_ else shares.as_float().share()
    if hasattr(fit, "decision_function"):
        scores = [child["scores"] for child in children]
        outputs["scores"] = scores[0] if len(scores) == 1 else beside(scores, x, to)
    return outputs


@adapts("sklearn.multiclass.OneVsOneClassifier")
def _one_vs_one(fit: Fitted, x: Flow, to: Importer) -> Outputs:
    to.need(fit.pairwise_indices_ is None, "precomputed kernels are not imported")
    children = members(fit, x, to)
    won = beside(
        [child["label"] if "label" in child else child["value"] for child in children], x, to
    )
    scores = won.duels(beside([_confidence(c) for c in children], x, to), len(fit.classes_))
    if len(fit.classes_) > 2:
        return {"label": scores.arg_max().take(fit.classes_), "scores": scores}
    second = scores.element(1)
    above = second.greater(_limit(children[0])).cast("int64")
    return {"label": above.take(fit.classes_), "scores": second}


@adapts("sklearn.multiclass.OutputCodeClassifier")
def _output_code(fit: Fitted, x: Flow, to: Importer) -> Outputs:
    children = members(fit, x, to)
    confidences = beside([_confidence(child) for child in children], x, to).cast("float64")
    # |x|^2 is the same for all rows of the book, but rounding with it decides between equal ones.
    distances = confidences.squared_distances(np.asarray(fit.code_book_, np.float64))
    return {"label": distances.arg_min().take(fit.classes_)}


@adapts("sklearn.semi_supervised.SelfTrainingClassifier")
def _self_training(fit: Fitted, x: Flow, to: Importer) -> Outputs:
    outputs = to.predict(fit.estimator_, x, "estimator_")
    return {name: flow for name, flow in outputs.items() if name != "features"}
