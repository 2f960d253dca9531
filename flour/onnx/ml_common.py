"""Helpers of the adapters of ai.onnx.ml: matrices row by row, links, labels.

onnxruntime computes classical models in float32 for every input dtype (but trees in float64 for
float64 input), and so does the native code. Where ONNX leaves something open, this does as
onnxruntime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.model import floats
from flour.onnx.registry import NodeUse
from flour.onnx.tensor import Tensor
from flour.ops.link import Logistic

ML = "ai.onnx.ml"
#: ONNX rows that one row of a program may hold, each with code of its own.
MOST_ROWS = 64


@dataclass(frozen=True)
class Matrix:
    """The ONNX rows within one row of the program (one, unless the model's shapes are static)."""

    rows: tuple[Flow, ...]
    width: int
    dtype: str
    axis: int | None

    def map(self, function: Callable[[Flow], Flow]) -> tuple[Flow, ...]:
        """The function's result for each row."""
        return tuple(function(row) for row in self.rows)

    def column(self, flows: Sequence[Flow]) -> Tensor:
        """One number or string for each row."""
        return Tensor.of(joined(flows), (len(self.rows),), self.axis)

    def table(self, flows: Sequence[Flow], width: int) -> Tensor:
        """A vector for each row."""
        return Tensor.of(joined(flows), (len(self.rows), width), self.axis)


def matrix(call: NodeUse, index: int = 0) -> Matrix:
    """An input as rows of features; a single dimension is one row."""
    item = call[index]
    if item.dtype == "string":
        raise NotNative("a matrix of strings")
    if item.rank not in (1, 2) or item.axis not in (None, 0):
        raise NotNative(f"a matrix is needed, not {item.shape} with rows along {item.axis}")
    if item.rank == 1 and item.axis is not None:
        raise NotNative("all rows of a vector together are one row of features")
    width = item.shape[-1]
    count = item.size // width if width else 0
    if not 0 < count <= MOST_ROWS:
        raise NotNative(f"{count} rows of {width} features in one tensor")
    flow = call.flow(item)
    if count == 1:
        return Matrix((flow,), width, item.dtype, item.axis)
    indices = np.arange(item.size).reshape(count, width)
    return Matrix(tuple(flow.select(row) for row in indices), width, item.dtype, item.axis)


def joined(flows: Sequence[Flow]) -> Flow:
    """The flows side by side."""
    return flows[0] if len(flows) == 1 else flows[0].concat(*flows[1:])


def single(flow: Flow) -> Flow:
    """The numbers in float32."""
    return flow if getattr(flow.type, "dtype", "") == "float32" else flow.cast("float32")


def narrow(values: object) -> Any:
    """Fitted numbers as float32."""
    return floats(values)


# --- links ----------------------------------------------------------------------------------------

#: The functions of scores that converters write, by name.
LINKS: dict[str, Callable[[Flow], Flow]] = {
    "NONE": lambda scores: scores,
    "LOGISTIC": Logistic(),
    "SOFTMAX": lambda scores: scores.softmax(),
}


def link_name(call: NodeUse) -> str:
    """The link that is applied to scores."""
    name = str(call.attribute("post_transform", "NONE"))
    if name not in LINKS:
        raise NotNative(f"scores through {name}")
    return name


def linked(scores: Flow, link: str) -> Flow:
    """The scores of several classes or targets after the link."""
    return LINKS[link](scores)


def complement(score: Flow) -> Flow:
    """The scores of both classes where one is the other's rest."""
    return score.one_minus().concat(score)


def opposite(score: Flow, link: str) -> Flow:
    """The scores of both classes where one is the other's opposite."""
    both = score.negate().concat(score)
    return linked(both, link) if link == "LOGISTIC" else both


def rest(score: Flow, link: str) -> Flow:
    """The scores of both classes from one that is a probability, or becomes one by LOGISTIC."""
    return opposite(score, link) if link == "LOGISTIC" else complement(score)


# --- labels ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Classes:
    """The labels of a classifier."""

    labels: tuple[Any, ...]
    strings: bool

    def take(self, index: Flow) -> Flow:
        """The label of an index."""
        return index.take(self._table(self.labels))

    def either(self, second: Flow, labels: Sequence[Any] | None = None) -> Flow:
        """The second label where true, else the first."""
        return second.cast("int64").take(self._table(labels or self.labels))

    def _table(self, labels: Sequence[Any]) -> Any:
        return np.array(labels, object) if self.strings else np.array(labels, np.int64)

    @property
    def plain(self) -> tuple[Any, Any]:
        """onnxruntime's labels of the two classes, where it ignores the model's own."""
        return ("0", "1") if self.strings else (0, 1)


def classes(call: NodeUse, ints: str = "classlabels_int64s") -> Classes:
    """The labels in a node's attributes."""
    strings = tuple(map(str, call.attribute("classlabels_strings", ())))
    if strings:
        return Classes(strings, strings=True)
    return Classes(tuple(map(int, call.attribute(ints, ()))), strings=False)
