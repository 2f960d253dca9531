"""Inner graphs (If and Scan), and lists of tensors, where all is known at import.

A known branch is inlined, a Scan of a known length is unrolled, and one along the rows runs its
body once for a row. An inner graph may not depend on other rows. The length of a list follows from
the graph, so a list is no value at run time: exporters write one where outputs differ in width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from flour.language.flow import Flow
from flour.onnx.errors import NotNative
from flour.onnx.model import GraphDef, NodeDef
from flour.onnx.registry import NodeUse, onnx_op
from flour.onnx.tensor import Tensor
from flour.onnx.words import Listed, refuse_words

#: A Scan of more rounds is not unrolled: the program would be too large.
MOST_ROUNDS = 64


def _graph(call: NodeUse, name: str) -> GraphDef:
    graph = call.attribute(name)
    if not isinstance(graph, GraphDef):
        raise NotNative(f"there is no graph {name!r}")
    return graph


# --- If -------------------------------------------------------------------------------------------


@onnx_op("If")
def _if(call: NodeUse) -> tuple[Tensor, ...]:
    condition = call[0]
    branches = _graph(call, "then_branch"), _graph(call, "else_branch")
    if condition.known:
        chosen = bool(call.constant(0, "the condition").reshape(-1)[0])
        return call.body(branches[0] if chosen else branches[1])
    if condition.size != 1 or condition.axis is not None:
        raise NotNative("a condition about all rows at once")
    yes, no = (call.body(branch) for branch in branches)
    return tuple(_either(call, condition, *pair) for pair in zip(yes, no, strict=True))


def _either(call: NodeUse, condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    refuse_words("If", [yes, no])
    if (yes.shape, yes.dtype) != (no.shape, no.dtype) or "string" in (yes.dtype, no.dtype):
        raise NotNative("branches whose answers have different shapes")
    test = call.flow(condition).element(0)
    return Tensor.of(test.where(call.flow(yes), call.flow(no)), yes.shape, None)


# --- Scan -----------------------------------------------------------------------------------------


def _stacked(call: NodeUse, items: Sequence[Tensor]) -> Tensor:
    """The results of all rounds, along a new first dimension."""
    if not items:
        raise NotNative("a scan that collects nothing")
    refuse_words("Scan", items)
    first = items[0]
    if any((item.shape, item.dtype) != (first.shape, first.dtype) for item in items):
        raise NotNative("rounds whose answers have different shapes")
    values = [item.value for item in items]
    if all(value is not None for value in values):
        return Tensor.constant(np.stack(values))  # type: ignore[arg-type]  # checked above
    axes = {item.axis for item in items if not item.known}
    if len(axes) > 1:
        raise NotNative("values whose rows are along different axes")
    axis = next(iter(axes))
    flows = [call.flow(item) for item in items]
    flow = flows[0] if len(flows) == 1 else flows[0].concat(*flows[1:])
    return Tensor.of(flow, (len(items), *first.shape), None if axis is None else axis + 1)


@onnx_op("Scan", since=9)
def _scan(call: NodeUse) -> tuple[Tensor, ...]:
    body, count = _graph(call, "body"), int(call.attribute("num_scan_inputs", 0))
    for name in ("scan_input_axes", "scan_output_axes", "scan_input_directions"):
        if any(call.attribute(name, ())) or any(call.attribute("scan_output_directions", ())):
            raise NotNative("a scan that is not along the first dimension, forwards")
    present = [item for item in call.inputs if item is not None]
    state, scanned = present[: len(present) - count], present[len(present) - count :]
    if not scanned:
        raise NotNative("a scan without inputs")
    if any(item.axis == 0 for item in scanned):
        # A row of the scan is a row of the program, if no state passes from row to row.
        if any(item.axis != 0 or item.shape[0] != 1 for item in scanned):
            raise NotNative("a scan along the rows and along another axis")
        around = [call.importer.values.get(name) for name in body.free_names()]
        if any(item is None or item.axis is not None for item in (*state, *around)):
            raise NotNative("a scan along the rows whose body reads all rows")
        rows = [replace(item.shaped(item.shape[1:], None), axis=None) for item in scanned]
        results = call.body(body, *state, *rows)
        for before, after in zip(state, results, strict=False):
            if before is not after:
                raise NotNative("a scan in which a row depends on those before it")
        outs = results[len(state) :]
        refuse_words("Scan", outs)
        return (*state, *(Tensor.of(call.flow(item), (1, *item.shape), 0) for item in outs))
    return distances(call, body, state, scanned) or _unrolled(call, body, state, scanned)


def _unrolled(
    call: NodeUse, body: GraphDef, state: Sequence[Tensor], scanned: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """A scan along a known length: its body, repeated."""
    rounds = {item.shape[0] for item in scanned if item.rank}
    if len(rounds) != 1 or max(rounds) > MOST_ROUNDS or not max(rounds):
        raise NotNative(f"a scan of {max(rounds, default=0)} rounds")
    now, scans = list(state), [list[Tensor]() for _ in body.outputs[len(state) :]]
    for number in range(max(rounds)):
        parts = [
            item.picked(item.flat_indices()[number], None if item.axis is None else item.axis - 1)
            for item in scanned
        ]
        results = call.body(body, *now, *parts)
        now = list(results[: len(state)])
        for collected, item in zip(scans, results[len(state) :], strict=True):
            collected.append(item)
    return (*now, *(_stacked(call, collected) for collected in scans))


# --- lists of tensors -----------------------------------------------------------------------------


@onnx_op("SequenceConstruct", since=11)
def _construct(call: NodeUse) -> Tensor:
    return Listed.holding([item for item in call.inputs if item is not None])


@onnx_op("SequenceAt", since=11)
def _at(call: NodeUse) -> Tensor:
    listed, position = call[0], int(call.constant(1, "the place in a list").reshape(-1)[0])
    if not isinstance(listed, Listed) or not -len(listed.items) <= position < len(listed.items):
        raise NotNative(f"index {position} of a list")
    return listed.items[position]


# --- a Scan that measures distances ---------------------------------------------------------------


#: The metric of each body, by its operators in order, each of which reads the one before it.
_CHAINS = {
    ("Sub", "ReduceSumSquare"): "sqeuclidean",
    ("Sub", "Abs", "ReduceSum"): "manhattan",
    ("Sub", "Abs", "Pow", "ReduceSum"): "minkowski",
}


class _MetricUse(NamedTuple):
    """A metric, and the exponent of those that have one."""

    metric: str
    exponent: float = 1.0

    def of(self, x: Flow, points: Any) -> Flow:
        """Sums over the columns, in float64; the root of minkowski's is left to other nodes."""
        if self.metric != "minkowski":
            return x.distances(points, self.metric)
        return x.distances(points, self.metric, self.exponent).power(self.exponent)


def distances(
    call: NodeUse, body: GraphDef, state: Sequence[Tensor], scanned: Sequence[Tensor]
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


def _measured(call: NodeUse, body: GraphDef) -> _MetricUse | None:
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
    return _MetricUse(metric) if metric != "minkowski" else _powers(call, body, steps[2])


def _powers(call: NodeUse, body: GraphDef, power: NodeDef) -> _MetricUse | None:
    """The exponent of a known power above one."""
    exponent = _known(call, body, power.inputs[1])
    if exponent is None or exponent.size != 1 or not 1 <= float(exponent.reshape(-1)[0]) < np.inf:
        return None
    return _MetricUse("minkowski", float(exponent.reshape(-1)[0]))


def _known(call: NodeUse, body: GraphDef, name: str) -> Any:
    """The value of a name within a body, or around it; None if it is not known at import."""
    around = call.importer.values.get(name)
    return body.constants.get(name, None if around is None else around.value)


def _along_columns(call: NodeUse, body: GraphDef, total: NodeDef) -> bool:
    """True if a reduction is over the columns, and leaves no dimension behind."""
    axes = total.attributes.get("axes")
    if axes is None and len(total.inputs) > 1:
        axes = _known(call, body, total.inputs[1])
    listed = [] if axes is None else [int(axis) for axis in np.reshape(axes, -1)]
    return listed in ([1], [-1]) and not int(total.attributes.get("keepdims", 1))
