"""Support vector machines with kernels: decisions between pairs, votes, coupled probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.check import expect, vector
from flour.core.emission import Emitter, RowValue, VectorValue
from flour.core.errors import ParameterError
from flour.core.native import held, write
from flour.core.op import Arity, Bound, Columns, Op
from flour.core.types import Type, Vector
from flour.core.words import Number, Numbers, Row, indexable, number, scratch, size
from flour.language.adapters import Fitted, Importer, adapts
from flour.language.flow import Flow
from flour.ops.kernel import product_kernel
from flour.ops.linear import plain
from flour.ops.vote import Duels


class CouplePairs(Op, arity=Arity.AGGREGATE, bound=Bound.COMPUTE):
    """Class probabilities that agree best with those of each pair of classes.

    Columns are the pairs (0, 1), (0, 2), ..., (1, 2), ... with the probability of the first. The
    probabilities are improved step by step, class by class, until every class is within 0.005 /
    classes of its optimum; the result depends on this stopping rule.
    """

    classes: int

    def check(self) -> None:
        if self.classes < 2:
            raise ParameterError("pairs are coupled for two classes or more")

    def infer(self, x: Type) -> Vector:
        kind = vector(x, "couple_pairs", self.classes * (self.classes - 1) // 2)
        expect(kind.dtype == "float64", f"couple_pairs computes in float64, got {kind}")
        return Vector(self.classes, "float64")

    @property
    def _steps(self) -> int:
        return max(100, self.classes)

    @property
    def _enough(self) -> float:
        return 0.005 / self.classes

    def reference(self, x: Columns) -> Columns:
        k = self.classes
        # The form that is smallest where the probabilities agree with all pairs.
        beats = np.zeros((len(x), k, k))
        for pair, (i, j) in enumerate(combinations(range(k), 2)):
            beats[:, i, j], beats[:, j, i] = x[:, pair], 1 - x[:, pair]
        matrix = -beats.transpose(0, 2, 1) * beats
        for t in range(k):
            matrix[:, t, t] = 0
            for j in range(k):
                if j != t:
                    matrix[:, t, t] += beats[:, j, t] * beats[:, j, t]
        p, active = np.full((len(x), k), 1.0 / k), np.ones(len(x), bool)
        for _ in range(self._steps):
            slopes, value = _slopes(matrix, p)
            # NaN is no error: pairs of unknown probability are left at equal shares.
            error = np.fmax.reduce(np.abs(slopes - value[:, None]), axis=1, initial=0)
            active &= ~(error < self._enough)
            if not active.any():
                break
            moved = _sweep(matrix, p.copy(), slopes, value)
            p = np.where(active[:, None], moved, p)
        return p

    def emit(self, e: Emitter, x: VectorValue) -> RowValue:
        return held(e, *write(e, coupled, x, self.classes, self._steps, self._enough))


def _slopes(matrix: NDArray[Any], p: NDArray[Any]) -> tuple[Any, Any]:
    """The matrix times p, and p times that, added up in order."""
    slopes, value = np.zeros_like(p), np.zeros(len(p))
    for t in range(p.shape[1]):
        for j in range(p.shape[1]):
            slopes[:, t] += matrix[:, t, j] * p[:, j]
        value += p[:, t] * slopes[:, t]
    return slopes, value


def _sweep(matrix: NDArray[Any], p: NDArray[Any], slopes: NDArray[Any], value: NDArray[Any]) -> Any:
    """One step along every class in turn."""
    for t in range(p.shape[1]):
        diagonal = matrix[:, t, t]
        step = (-slopes[:, t] + value) / diagonal
        p[:, t] += step
        value = (value + step * (step * diagonal + 2 * slopes[:, t])) / (1 + step) / (1 + step)
        slopes = (slopes + step[:, None] * matrix[:, t]) / (1 + step)[:, None]
        p /= (1 + step)[:, None]
    return p


def coupled(x: Row, classes: int, steps: int, enough: float) -> Any:
    """The probabilities of the classes that agree best with those of each pair."""
    k = size(classes)
    matrix = scratch("float64", classes * classes)
    p, slopes = scratch("float64", classes), scratch("float64", classes)
    most, least = size(steps), number(enough, "float64")
    write_quadratic(x, matrix, k)
    for t in range(k):
        p[t] = 1.0 / k
    for _ in range(most):
        value, error = write_slopes(matrix, p, slopes, k)
        if error < least:
            break
        sweep(matrix, p, slopes, k, value)
    return p, classes, k


def write_quadratic(x: Row, matrix: Numbers, k: int) -> None:
    """The form that is smallest where the probabilities agree with all pairs."""
    columns, pair = indexable(x), 0
    for t in range(k * k):
        matrix[t] = 0.0
    for i in range(k):
        for j in range(i + 1, k):
            first = columns[pair]
            second = 1.0 - first
            matrix[i * k + j] = -(first * second)
            matrix[j * k + i] = -(first * second)
            matrix[i * k + i] += second * second
            matrix[j * k + j] += first * first
            pair = pair + 1


def write_slopes(matrix: Numbers, p: Numbers, slopes: Numbers, k: int) -> tuple[Number, Number]:
    """The matrix times p; returns p times that, and how far from it any slope is."""
    value, error = 0.0, 0.0
    for t in range(k):
        slope = 0.0
        for j in range(k):
            slope = slope + matrix[t * k + j] * p[j]
        slopes[t] = slope
        value = value + p[t] * slope
    for t in range(k):
        gap = abs(slopes[t] - value)
        error = max(error, gap)
    return value, error


def sweep(matrix: Numbers, p: Numbers, slopes: Numbers, k: int, value: Number) -> None:
    """One step along every class in turn."""
    for t in range(k):
        diagonal, slope = matrix[t * k + t], slopes[t]
        step = (-slope + value) / diagonal
        p[t] += step
        gain = step * (step * diagonal + 2.0 * slope)
        value = (value + gain) / (1.0 + step) / (1.0 + step)
        for j in range(k):
            slopes[j] = (slopes[j] + step * matrix[t * k + j]) / (1.0 + step)
            p[j] = p[j] / (1.0 + step)


# --- adapters -------------------------------------------------------------------------------------


def _decisions(fit: Fitted, x: Flow, weights: NDArray[Any]) -> Flow:
    """The kernel with the support vectors, times weights (one row a decision), plus intercepts."""
    return _kernel(fit, x).linear(weights, fit._intercept_)


def _kernel(fit: Fitted, x: Flow) -> Flow:
    if fit.kernel == "precomputed":
        return x.select(fit.support_)
    points, gamma = plain(fit.support_vectors_), float(fit._gamma)
    if fit.kernel == "rbf":
        return x.distances(points, "sqeuclidean").multiply(-gamma).exp()
    return product_kernel(x, points, fit.kernel, gamma, fit.degree, float(fit.coef0))


def _input(fit: Fitted, x: Flow, to: Importer) -> Flow:
    to.need(not callable(fit.kernel), "a kernel that is a Python function stays Python")
    return to.doubles(x)


def _value(fit: Fitted, x: Flow, to: Importer) -> Flow:
    """The one decision of a machine that is no classifier."""
    x, weights = _input(fit, x, to), plain(fit._dual_coef_)
    if not weights.shape[1]:
        # No support vectors are left: the decision is the same for every row.
        return x.fill(fit._intercept_, scalar=True)
    return _decisions(fit, x, weights).element(0)


@adapts("sklearn.svm.SVR", "sklearn.svm.NuSVR")
def _regressor(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    return {"value": _value(fit, x, to)}


@adapts("sklearn.svm.OneClassSVM")
def _one_class(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    scores = _value(fit, x, to)
    return {"label": scores.greater(0.0).cast("int64").take([-1, 1]), "scores": scores}


@adapts("sklearn.svm.SVC", "sklearn.svm.NuSVC")
def _classifier(fit: Fitted, x: Flow, to: Importer) -> dict[str, Flow]:
    x, several = _input(fit, x, to), len(fit.classes_) > 2
    decisions = _decisions(fit, x, pair_weights(plain(fit._dual_coef_), fit._n_support))
    scores = _scores(fit, decisions) if several else decisions.negate().element(0)
    ties = fit.break_ties and fit.decision_function_shape == "ovr" and several
    to.need(
        not fit.break_ties or fit.decision_function_shape == "ovr",
        "break_ties needs decision_function_shape='ovr'; the library refuses to predict",
    )
    index = scores.arg_max() if ties else most_votes(decisions, len(fit.classes_))
    outputs = {"label": index.take(fit.classes_), "scores": scores}
    if hasattr(fit, "predict_proba"):
        fitted = decisions.multiply(fit._probA).add(fit._probB)
        pairs = fitted.negate().sigmoid().clip(1e-7, 1 - 1e-7)
        outputs["probabilities"] = pairs.couple_pairs(len(fit.classes_))
    return outputs


def pair_weights(coefficients: NDArray[Any], sizes: Sequence[int]) -> NDArray[Any]:
    """Per pair of classes, the weight of every support vector (only those of the two have one)."""
    ends = np.cumsum([0, *sizes])
    spans = [slice(ends[i], ends[i + 1]) for i in range(len(sizes))]
    pairs = list(combinations(range(len(spans)), 2))
    weights = np.zeros((len(pairs), coefficients.shape[1]), coefficients.dtype)
    for row, (i, j) in zip(weights, pairs, strict=True):
        row[spans[i]] = coefficients[j - 1, spans[i]]
        row[spans[j]] = coefficients[i, spans[j]]
    return weights


def most_votes(decisions: Flow, classes: int) -> Flow:
    """The class that wins most pairs, the first of equals; a decision above zero is the first's."""
    pairs = list(combinations(range(classes), 2))
    sign, offset = np.zeros((classes, len(pairs))), np.zeros(classes)
    for column, (i, j) in enumerate(pairs):
        sign[i, column], sign[j, column] = 1, -1
        offset[j] += 1
    return decisions.greater(0.0).cast("float64").linear(sign, offset).arg_max()


def _scores(fit: Fitted, decisions: Flow) -> Flow:
    """Decisions for each pair, or condensed to one score a class."""
    if fit.decision_function_shape == "ovo":
        return decisions
    second = decisions.negate()
    return Duels(len(fit.classes_))(second.greater(0.0).cast("float64"), second)
