"""Matrix products: with weights known at import, or of two computed matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from flour.language.flow import Flow
from flour.onnx.arithmetic import together
from flour.onnx.errors import NotNative
from flour.onnx.reductions import reduced
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.shapes import in_order, transposed
from flour.onnx.tensor import Tensor, sizes_fit, spread
from flour.ops.indexed import MatrixProducts
from flour.ops.segments import SegmentSum


def product(call: NodeUse, x: Tensor, y: Tensor) -> Tensor:
    """x @ y as numpy's matmul, rows along any axis but those that are summed over."""
    left = x.shaped((1, *x.shape), None if x.axis is None else x.axis + 1) if x.rank == 1 else x
    right = y.shaped((*y.shape, 1), y.axis) if y.rank == 1 else y
    if left.axis == left.rank - 1 or (right.axis is not None and right.axis == right.rank - 2):
        raise NotNative("a sum over all rows")
    result = _matrices(call, left, right)
    if y.rank == 1:
        axis = result.axis
        if axis == result.rank - 1:
            raise NotNative("a product that drops the rows")
        result = result.shaped(result.shape[:-1], axis)
    if x.rank == 1:
        index = result.rank - (1 if y.rank == 1 else 2)
        axis = result.axis if result.axis is None or result.axis < index else result.axis - 1
        result = result.shaped(result.shape[:index] + result.shape[index + 1 :], axis)
    return result


def _matrices(call: NodeUse, x: Tensor, y: Tensor) -> Tensor:
    if x.shape[-1] != y.shape[-2]:
        raise NotNative(f"matrices of {x.shape} and {y.shape}")
    rank = max(x.rank, y.rank)
    (m, k), n = x.shape[-2:], y.shape[-1]
    axis = _axis(x, y, rank)
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    shape = (*batch, m, n)
    sizes_fit(shape, "the product")
    if not prod(shape) or not k:
        return Tensor.constant(np.zeros(shape, x.dtype), axis)
    if y.value is not None and y.rank == 2 and x.flow is not None and x.size == k:
        return Tensor.of(call.flow(x).linear(y.value.T, []), shape, axis)
    if x.value is not None and x.rank == 2 and y.flow is not None and y.size == k:
        return Tensor.of(call.flow(y).linear(x.value, []), shape, axis)
    if y.rank == 2:  # one matrix for all: the batch is more rows of the first
        flows = call.flow(x), call.flow(y)
        return Tensor.of(MatrixProducts(x.size // k, k, n)(*flows), shape, axis)
    first, second = spread(x, (*batch, m, k), None), spread(y, (*batch, k, n), None)
    return Tensor.of(MatrixProducts(m, k, n)(call.flow(first), call.flow(second)), shape, axis)


def _axis(x: Tensor, y: Tensor, rank: int) -> int | None:
    """The axis of the product's rows."""
    axes = {item.axis + rank - item.rank for item in (x, y) if item.axis is not None}
    if len(axes) > 1:
        raise NotNative("rows along different axes")
    axis = next(iter(axes), None)
    if axis is None:
        return None
    if axis >= rank - 2:
        if x.axis is not None and y.axis is not None:
            raise NotNative("a product of each row with all rows")
        return axis
    counts = {item.shape[axis - rank] for item in (x, y) if item.axis is not None}
    others = {
        item.shape[axis - rank] for item in (x, y) if item.axis is None and item.rank + axis >= rank
    }
    if len(counts) > 1 or others - {1}:
        raise NotNative("an operation between values of different rows")
    return axis


onnx_op("MatMul")(lambda call: product(call, call[0], call[1]))


@onnx_op("Gemm")
def _gemm(call: NodeUse) -> Tensor:
    x, y = call[0], call[1]
    x = transposed(x, (1, 0)) if call.attribute("transA", 0) else x
    y = transposed(y, (1, 0)) if call.attribute("transB", 0) else y
    alpha, beta, bias = call.attribute("alpha", 1.0), call.attribute("beta", 1.0), call.optional(2)
    fitted = None if bias is None else bias.value
    row = x.flow is not None and x.size == y.shape[0]
    if row and fitted is not None and y.value is not None and alpha == 1:
        # A row times known weights, plus a known bias: one operator.
        n = y.shape[1]
        if np.broadcast_shapes(fitted.shape, (1, n)) != (1, n):
            raise NotNative("another bias for every row")
        scaled = fitted if beta == 1 else fitted * fitted.dtype.type(beta)
        values = np.broadcast_to(scaled, (1, n)).reshape(-1)
        return Tensor.of(call.flow(x).linear(y.value.T, values), (x.shape[0], n), x.axis)
    result = _times(call, product(call, x, y), alpha)
    if bias is None:
        return result
    return together(call, [result, _times(call, bias, beta)], lambda a, b: a.plus(b))


def _times(call: NodeUse, item: Tensor, factor: float) -> Tensor:
    if factor == 1 or not item.size:
        return item
    constant = Tensor.constant(np.array(factor, item.dtype))
    return together(call, [item, constant], lambda x, y: x.times(y))


# --- Einsum ---------------------------------------------------------------------------------------


@onnx_op("Einsum", since=12)
def _einsum(call: NodeUse) -> Tensor:
    items = [item for item in call.inputs if item is not None]
    terms, out = _terms(call.attribute("equation").replace(" ", ""), items)
    parts = [_diagonal(item, term) for item, term in zip(items, terms, strict=True)]
    result, labels = parts[0]
    for index, (item, term) in enumerate(parts[1:], 2):
        later = set(out).union(*(rest for _, rest in parts[index:]))
        result, labels = _contract(call, (result, labels), (item, term), later)
    result, labels = _summed(call, result, labels, set(out))
    return transposed(result, [labels.index(label) for label in out])


def _terms(equation: str, items: Sequence[Tensor]) -> tuple[list[str], str]:
    """The labels of each input and of the output; those of an ellipsis are capital digits."""
    left, arrow, out = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(items):
        raise NotNative("an equation for another number of inputs")
    spare = "0123456789"
    most = 0
    for index, (term, item) in enumerate(zip(terms, items, strict=True)):
        if "..." in term:
            count = item.rank - len(term) + 3
            most = max(most, count)
            terms[index] = term.replace("...", spare[10 - count :] if count else "")
    if not arrow:
        joined = "".join(terms)
        out = "..." + "".join(
            sorted(c for c in set(joined) if joined.count(c) == 1 and c.isalpha())
        )
    return terms, out.replace("...", spare[10 - most :] if most else "")


def _diagonal(item: Tensor, term: str) -> tuple[Tensor, str]:
    """A term in which no label occurs twice."""
    labels = "".join(dict.fromkeys(term))
    if labels == term:
        return item, term
    if item.axis is not None:
        raise NotNative("a diagonal across rows")
    numbers = [[labels.index(label) for label in part] for part in (term, labels)]
    return item.picked(np.einsum(item.flat_indices(), *numbers), None), labels


def _summed(call: NodeUse, item: Tensor, labels: str, kept: set[str]) -> tuple[Tensor, str]:
    """The tensor summed over the labels that are not read further on."""
    axes = tuple(axis for axis, label in enumerate(labels) if label not in kept)
    if not axes:
        return item, labels
    if item.axis in axes:
        raise NotNative("a sum over all rows")

    def function(x: Flow, length: int) -> Flow:
        return SegmentSum(length)(x)

    result = reduced(call, item, axes, function, 0, keep=False)
    return result, "".join(label for label in labels if label in kept)


def _contract(
    call: NodeUse, left: tuple[Tensor, str], right: tuple[Tensor, str], later: set[str]
) -> tuple[Tensor, str]:
    """Two terms as one: batch labels, then those of the left and of the right alone."""
    x, ones = _summed(call, *left, later | set(right[1]))
    y, others = _summed(call, *right, later | set(ones))
    both = [label for label in ones if label in others]
    batch, inner = [c for c in both if c in later], [c for c in both if c not in later]
    m, n = [c for c in ones if c not in both], [c for c in others if c not in both]
    sizes = dict(zip(others, y.shape, strict=True)) | dict(zip(ones, x.shape, strict=True))
    first = _grouped(x, ones, (batch, m, inner), sizes)
    second = _grouped(y, others, (batch, inner, n), sizes)
    result = product(call, first, second)
    labels = "".join([*batch, *m, *n])
    axis = None
    if result.axis is not None:
        axis = labels.index(ones[x.axis] if x.axis is not None else others[y.axis or 0])
    return in_order(result, [sizes[label] for label in labels], axis), labels


def _grouped(
    item: Tensor, labels: str, groups: Sequence[list[str]], sizes: dict[str, int]
) -> Tensor:
    """The tensor with its labels in three groups, each one axis."""
    order = [label for group in groups for label in group]
    turned = transposed(item, [labels.index(label) for label in order])
    axis = None
    if turned.axis is not None:
        mine = order[turned.axis]
        axis = next(index for index, group in enumerate(groups) if mine in group)
    return in_order(turned, [prod(sizes[label] for label in group) for group in groups], axis)
