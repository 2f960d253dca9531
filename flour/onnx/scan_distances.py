"""The Scan that computes distances: exporters write one where there is no CDist.

Its state is the rows, and it scans points known at import; every round subtracts a point from the
rows and adds up the columns. Unrolled, it would be a part of the program for every point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flour.language.flow import Flow
from flour.onnx.model import GraphDef, NodeDef
from flour.onnx.registry import Call
from flour.onnx.tensor import Tensor

#: The metric of each body, by its operators in order, each of which reads the one before it.
_CHAINS = {
    ("Sub", "ReduceSumSquare"): "sqeuclidean",
    ("Sub", "Abs", "ReduceSum"): "manhattan",
    ("Sub", "Abs", "Pow", "ReduceSum"): "minkowski",
}


class _Measure(NamedTuple):
    """A metric, and the exponent of those that have one."""

    metric: str
    exponent: float = 1.0

    def of(self, x: Flow, points: Any) -> Flow:
        """Sums over the columns, in float64; the root of minkowski's is left to other nodes."""
        if self.metric != "minkowski":
            return x.distances(points, self.metric)
        return x.distances(points, self.metric, self.exponent).power(self.exponent)


def distances(
    call: Call, body: GraphDef, state: Sequence[Tensor], scanned: Sequence[Tensor]
) -> tuple[Tensor, ...] | None:
    """The rows, and their distances from all points; None for any other scan."""
    if len(state) != 1 or len(scanned) != 1 or scanned[0].value is None:
        return None
    x, points = state[0], scanned[0].value
    fits = x.rank == 2 and x.axis == 0 and x.shape[0] == 1 and points.ndim == 2
    if not fits or x.dtype not in ("float32", "float64") or x.shape[1] != points.shape[1]:
        return None
    measure = _measured(call, body)
    if measure is None or not len(points):
        return None
    sums = measure.of(call.flow(x).cast("float64"), points.astype(np.float64))
    return x, Tensor.of(sums.cast(x.dtype), (len(points), 1), 1)


def _measured(call: Call, body: GraphDef) -> _Measure | None:
    """The metric that a body computes between its state and the scanned point."""
    names, steps = {port.name: port.name for port in body.inputs}, []
    for node in body.nodes:
        if node.op_type == "Identity":
            names[node.outputs[0]] = names.get(node.inputs[0], node.inputs[0])
        else:
            steps.append(node)
    metric = _CHAINS.get(tuple(step.op_type for step in steps))
    if metric is None or len(body.inputs) != 2:
        return None
    ends = [names.get(port.name, port.name) for port in body.outputs]
    start, scanned = (port.name for port in body.inputs)
    read = [[names.get(name, name) for name in step.inputs] for step in steps]
    outputs = [step.outputs[0] for step in steps]
    linked = [first for first, *_ in read[1:]] == outputs[:-1] and read[0] == [start, scanned]
    if not linked or ends != [start, outputs[-1]] or not _along_columns(call, body, steps[-1]):
        return None
    return _Measure(metric) if metric != "minkowski" else _powers(call, body, steps[2])


def _powers(call: Call, body: GraphDef, power: NodeDef) -> _Measure | None:
    """The exponent of a known power above one."""
    exponent = _known(call, body, power.inputs[1])
    if exponent is None or exponent.size != 1 or not 1 <= float(exponent.reshape(-1)[0]) < np.inf:
        return None
    return _Measure("minkowski", float(exponent.reshape(-1)[0]))


def _known(call: Call, body: GraphDef, name: str) -> Any:
    """The value of a name within a body, or around it; None if it is not known at import."""
    around = call.importer.values.get(name)
    return body.constants.get(name, None if around is None else around.value)


def _along_columns(call: Call, body: GraphDef, total: NodeDef) -> bool:
    """Whether a reduction is over the columns, and leaves no dimension behind."""
    axes = total.attributes.get("axes")
    if axes is None and len(total.inputs) > 1:
        axes = _known(call, body, total.inputs[1])
    listed = [] if axes is None else [int(axis) for axis in np.reshape(axes, -1)]
    return listed in ([1], [-1]) and not int(total.attributes.get("keepdims", 1))
