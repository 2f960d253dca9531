"""True if a program's answers can be reconstructed exactly, told from the program alone.

An answer is exact where all outputs are computed from one value, the scores, which is an affine
function of one earlier value, the features, in float64 throughout: F(Σ x) = Σ F(x) + (1 - k) b.
The front end computes the features and, after decoding, what comes after the scores (softmax,
labels); replicas compute the scores. An operator is affine only if it is listed here, so that a new
one is never taken for exact by mistake.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from flour.core.node import Node, node, rebuild, topological
from flour.core.source import Source
from flour.core.types import Scalar, Type, Vector
from flour.language.flow import Flow
from flour.ops.binary import Minus, Plus
from flour.ops.elementwise import Add, AsFloat, Cast, Divide, Multiply, OneMinus, Subtract
from flour.ops.linear import Linear
from flour.ops.require import RequireFinite
from flour.ops.structure import AsVector, Concat, Element, Select
from objectstore import Blob
from runtime.errors import ClusterError

#: Affine in float64, whatever finite parameters they have.
_AFFINE = (
    *(Linear, Add, Subtract, Multiply, Divide, OneMinus, Plus, Minus),
    *(AsFloat, Cast, RequireFinite, Select, Element, AsVector, Concat),
)
Verdict = Literal["exact", "approximate", "replicate"]


@dataclass(frozen=True)
class Recovery:
    """A way to recompute lost answers.

    exact        from a parity query to the same program: `front`, `scores`, `link` are its parts
    approximate  by a trained parity model: the program has one input, a vector of numbers
    replicate    only by asking another replica
    """

    verdict: Verdict
    reason: str
    front: Flow | None = None
    """Inputs to features; None where the input is the features."""
    scores: Flow | None = None
    """Features to scores, from the input `features`: what replicas and parity replicas compute."""
    link: Flow | None = None
    """Scores, the input `scores`, to the program's outputs."""

    def __str__(self) -> str:
        return f"recoverable: {self.verdict}, {self.reason}"


def recoverable(flow: Flow) -> Recovery:
    """True if answers of a program can be reconstructed from a parity query."""
    if not isinstance(flow, Flow):
        raise ClusterError(
            "what can be recovered is told of a program",
            found=type(flow).__name__,
            hint="flour.from_sklearn(model), or plan.flow",
        )
    outputs = list(flow.outputs.values())
    order = topological(outputs)
    for last in reversed(order):
        if _affine(last) and not _sources_without(outputs, last):
            first = _features(last, order)
            if first is not None:
                return _parted(flow, first, last)
    sources = [item.type for item in order if isinstance(item.op, Source)]
    if len(sources) == 1 and isinstance(sources[0], Vector) and sources[0].dtype != "string":
        return Recovery("approximate", "its scores are no affine function of earlier values")
    return Recovery("replicate", "its input is no vector of numbers that could be added up")


def _affine(item: Node) -> bool:
    """True if the node is an affine function of its inputs, in float64, dense or not."""
    if type(item.op) not in _AFFINE or not _wide(item.type) or not _finite(item):
        return False
    linear = isinstance(item.op, Linear)
    return all(_wide(source.type, sparse=linear) for source in item.inputs)


def _wide(kind: Type, *, sparse: bool = False) -> bool:
    if isinstance(kind, Scalar):
        return kind.dtype == "float64"
    return isinstance(kind, Vector) and kind.dtype == "float64" and (sparse or not kind.sparse)


def _finite(item: Node) -> bool:
    """True if all parameters are finite, and none is divided by that is zero."""
    values = [value.array for value in vars(item.op).values() if isinstance(value, Blob)]
    if isinstance(item.op, RequireFinite):
        return True  # its limits are no part of what it answers
    if isinstance(item.op, Divide) and not all(np.all(value) for value in values):
        return False
    return all(bool(np.all(np.isfinite(value))) for value in values)


def _sources_without(roots: Iterable[Node], without: Node) -> bool:
    """True if a source, or a value without inputs, can be reached other than through a node."""
    seen, stack = {without}, list(roots)
    while stack:
        item = stack.pop()
        if item in seen:
            continue
        if not item.inputs:
            return True
        seen.add(item)
        stack.extend(item.inputs)
    return False


def _features(last: Node, order: Iterable[Node]) -> Node | None:
    """The earliest value that the scores are an affine function of, with a linear model between."""
    for first in order:
        if first is last or not _wide(first.type, sparse=True):
            continue
        between = _between(first, last)
        if between is not None and any(isinstance(item.op, Linear) for item in between):
            return first
    return None


def _between(first: Node, last: Node) -> set[Node] | None:
    """The nodes from one to another, if all are affine and nothing else is read on the way."""
    seen: set[Node] = set()
    stack = [last]
    while stack:
        item = stack.pop()
        if item is first or item in seen:
            continue
        if not _affine(item) or not item.inputs:
            return None
        seen.add(item)
        stack.extend(item.inputs)
    return seen


def _parted(flow: Flow, first: Node, last: Node) -> Recovery:
    features, scores = _source("features", first.type), _source("scores", last.type)
    (middle,) = rebuild(
        [last], lambda item, inputs: features if item is first else node(item.op, inputs)
    )
    ends = rebuild(
        flow.outputs.values(),
        lambda item, inputs: scores if item is last else node(item.op, inputs),
    )
    given = isinstance(first.op, Source)
    sparse = isinstance(first.type, Vector) and first.type.sparse
    front = Flow({"output": first})
    return Recovery(
        "exact",
        "from its input on" if given else f"after {first.op.name} ({first.type})",
        None if given else front.to_dense() if sparse else front,
        Flow({"output": middle}),
        Flow(dict(zip(flow.outputs, ends, strict=True))),
    )


def _source(name: str, kind: Type) -> Node:
    dense = kind.having(sparse=False) if isinstance(kind, Vector) else kind
    return node(Source(name, dense), ())
