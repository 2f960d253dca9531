"""Support vector machines of ai.onnx.ml: kernels, decisions between pairs, probabilities.

Kernels and decisions are summed in float64 here and rounded to float32 where onnxruntime does; the
probabilities of more than two classes are coupled in float64.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.ml_common import (
    ML,
    Classes,
    classes,
    link_name,
    linked,
    matrix,
    narrow,
    opposite,
    rest,
    single,
)
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Tensor
from flour.ops.link import FirstLargest, Logistic
from flour.ops.svm import most_votes, pair_weights

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def _kernel(call: NodeUse, x: Flow, points: Any) -> Flow:
    """The kernel of the row and each support vector, in float32."""
    name = str(call.attribute("kernel_type", "LINEAR"))
    gamma, shift, degree = (*map(float, call.attribute("kernel_params", ())), 0.0, 0.0, 0.0)[:3]
    x = single(x)
    if name == "RBF":
        gap = x.cast("float64").distances(points.astype(np.float64), "sqeuclidean")
        return gap.cast("float32").multiply(np.float32(-gamma)).exp()
    products = x.linear(points, [])
    if name == "LINEAR":
        return products
    if name not in _KERNELS:
        raise NotNative(f"the kernel {name!r}")
    shifted = products.multiply(np.float32(gamma)).add(np.float32(shift))
    return shifted.power(degree) if name == "POLY" else shifted.tanh()


def _decisions(call: NodeUse, x: Flow, points: Any, weights: Any, offsets: Any) -> Flow:
    """Weighted sums of the kernel plus offsets, added up in float64."""
    kernel = _kernel(call, x, points).cast("float64")
    return kernel.linear(weights.astype(np.float64), offsets.astype(np.float64))


def _points(call: NodeUse, count: int, width: int) -> Any:
    numbers = narrow(call.attribute("support_vectors"))
    if numbers.size != count * width:
        raise NotNative(f"{numbers.size} numbers for {count} support vectors of {width} features")
    return numbers.reshape(count, width)


@onnx_op("SVMRegressor", domain=ML)
def _regressor(call: NodeUse) -> Tensor:
    """A machine's value without a link: onnxruntime ignores `post_transform` here."""
    x, count = matrix(call), int(call.attribute("n_supports", 0))
    weights, rho = narrow(call.attribute("coefficients")), narrow(call.attribute("rho"))
    if not rho.size or weights.size != (count or x.width):
        raise NotNative(f"{weights.size} coefficients for {count} support vectors")
    one_class = bool(call.attribute("one_class", 0))

    def value(row: Flow) -> Flow:
        if count:
            points = _points(call, count, x.width)
            score = _decisions(call, row, points, weights[None], rho[:1]).cast("float32")
        else:
            score = single(row).linear(weights[None], rho[:1])
        if one_class:
            return score.greater(np.float32(0)).cast("int64").take(narrow([-1, 1]))
        return score

    return x.table(x.map(value), 1)


@onnx_op("SVMClassifier", domain=ML)
def _classifier(call: NodeUse) -> tuple[Tensor, Tensor]:
    labels = classes(call, "classlabels_ints")
    sizes = tuple(map(int, call.attribute("vectors_per_class", ())))
    if len(labels.labels) < 2:
        raise NotNative("a machine for less than two classes")
    return _pairs(call, labels, sizes) if sum(sizes) else _linear(call, labels)


def _linear(call: NodeUse, labels: Classes) -> tuple[Tensor, Tensor]:
    """One linear score for each class, all with one offset."""
    x, link, count = matrix(call), link_name(call), len(labels.labels)
    weights, rho = narrow(call.attribute("coefficients")), narrow(call.attribute("rho"))
    if weights.size != count * x.width or not rho.size:
        raise NotNative(f"{weights.size} coefficients for {count} classes of {x.width} features")
    table, bias = weights.reshape(count, x.width), np.full(count, rho[0])
    scores = x.map(lambda row: single(row).linear(table, bias))
    best = [_best(score, labels, positive=bool((weights >= 0).all())) for score in scores]
    return x.column(best), x.table([linked(score, link) for score in scores], count)


def _best(score: Flow, labels: Classes, *, positive: bool) -> Flow:
    index = FirstLargest()(score)
    if len(labels.labels) != 2:
        return labels.take(index)
    top, least = score.max(), np.float32(0.5 if positive else 0)
    sure = top.greater_equal(least) if positive else top.greater(least)
    return labels.take(index.maximum(sure.cast("int64")))


def _pairs(call: NodeUse, labels: Classes, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """A decision for each pair of classes; the class with the most wins is the label."""
    x, count = matrix(call), len(labels.labels)
    pairs = list(combinations(range(count), 2))
    if len(sizes) != count:
        raise NotNative("vectors_per_class has not one entry for each class")
    coefficients, rho = (narrow(call.attribute(name)) for name in ("coefficients", "rho"))
    if coefficients.size != (count - 1) * sum(sizes):
        raise NotNative(f"{coefficients.size} coefficients for {sum(sizes)} support vectors")
    weights = pair_weights(coefficients.reshape(count - 1, sum(sizes)), sizes)
    if rho.size < len(pairs):
        raise NotNative(f"{rho.size} offsets for {len(pairs)} pairs of classes")
    points = _points(call, sum(sizes), x.width)
    sums = x.map(lambda row: _decisions(call, row, points, weights, rho[: len(pairs)]))
    best = [labels.take(most_votes(each, count)) for each in sums]
    scores = [_scores(call, each, pairs, count) for each in sums]
    return x.column(best), x.table(scores, scores[0].type.width)  # type: ignore[union-attr]


def _scores(call: NodeUse, sums: Flow, pairs: list[tuple[int, int]], count: int) -> Flow:
    link, narrowed = link_name(call), sums.cast("float32")
    slopes, shifts = (narrow(call.attribute(name)) for name in ("prob_a", "prob_b"))
    if slopes.size:
        if min(slopes.size, shifts.size) < len(pairs):
            raise NotNative("every pair of classes needs its own probability")
        return linked(_probabilities(narrowed, slopes, shifts, len(pairs), count), link)
    if count > 2:
        return linked(narrowed, link)
    return opposite(narrowed, link) if link == "NONE" else rest(narrowed, link)


def _probabilities(sums: Flow, slopes: Any, shifts: Any, pairs: int, count: int) -> Flow:
    """Platt's probability of each pair, coupled."""
    fitted = sums.multiply(slopes[:pairs]).add(shifts[:pairs])
    first = Logistic()(fitted).one_minus()
    sure = first.clip(narrow([1e-7]), narrow([1 - 1e-7]))
    return sure.cast("float64").couple_pairs(count).cast("float32")
