"""Linear models of ai.onnx.ml: scores in float32, links, labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from flour.onnx.errors import NotNative
from flour.onnx.ml_common import ML, classes, link_name, linked, matrix, narrow, rest, single
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Tensor
from flour.ops.link import FirstLargest


def _weights(call: NodeUse, outputs: int, width: int) -> Any:
    coefficients = narrow(call.attribute("coefficients"))
    if not outputs or coefficients.size != outputs * width:
        raise NotNative(
            f"{coefficients.size} coefficients for {outputs} scores of {width} features"
        )
    return coefficients.reshape(outputs, width)


@onnx_op("LinearRegressor", domain=ML)
def _regressor(call: NodeUse) -> Tensor:
    x, targets, link = matrix(call), int(call.attribute("targets", 1)), link_name(call)
    weights, bias = _weights(call, targets, x.width), narrow(call.attribute("intercepts"))
    if bias.size not in (0, targets):
        raise NotNative(f"{bias.size} intercepts for {targets} targets")
    if targets == 1:
        link = "NONE"
    return x.table(x.map(lambda row: linked(single(row).linear(weights, bias), link)), targets)


@onnx_op("LinearClassifier", domain=ML)
def _classifier(call: NodeUse) -> tuple[Tensor, Tensor]:
    x, labels, link = matrix(call), classes(call, "classlabels_ints"), link_name(call)
    bias = narrow(call.attribute("intercepts"))
    weights = _weights(call, bias.size, x.width)
    # One dot product is enough where the first class's scores are minus the second's.
    two = bias.size == 2 and len(labels.labels) == 2
    if two and np.all(weights[0] == -weights[1]) and np.all(bias[0] == -bias[1]):
        scores = x.map(lambda row: single(row).linear(weights[1:], bias[1:]))
        # The second class's scores, whose sign decides; negation is exact, so no digit differs.
        best = [labels.either(score.element(0).greater(np.float32(0))) for score in scores]
        outputs = [linked(score.negate().concat(score), link) for score in scores]
        return x.column(best), x.table(outputs, 2)
    scores = x.map(lambda row: single(row).linear(weights, bias))
    if bias.size == 1:
        # One score for two classes: its sign decides; no link but LOGISTIC is applied.
        both = len(labels.labels) == 2
        named = labels.labels if both else labels.plain
        best = [labels.either(score.element(0).greater(np.float32(0)), named) for score in scores]
        if not both:
            return x.column(best), x.table(scores, 1)
        return x.column(best), x.table([rest(score, link) for score in scores], 2)
    if len(labels.labels) < bias.size:
        raise NotNative(f"{len(labels.labels)} labels for {bias.size} classes")
    best = [labels.take(FirstLargest()(score)) for score in scores]
    return x.column(best), x.table([linked(score, link) for score in scores], bias.size)
