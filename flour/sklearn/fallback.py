"""Estimators without an adapter: through skl2onnx, where it converts them and the answers agree.

The importer passes the rows of the sample that reach the step. skl2onnx's model of the step is
imported like any ONNX model, and used only if its answers for these rows are the step's own.
Without a sample there is no fallback: there would be nothing to compare with.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flour.core.errors import FlourError, ImportRefused, UnsupportedSetting
from flour.core.node import Node, node, rebuild
from flour.core.source import Source
from flour.core.types import FLOATS, Vector
from flour.language.adapters import Fitted
from flour.language.flow import Flow

#: Relative to the largest answer; converters compute partly in float32.
TOLERANCE = 1e-6
_INPUT = "X"


def through_onnx(estimator: Fitted, x: Flow, rows: NDArray[Any]) -> Flow | dict[str, Flow]:
    """The program of an estimator by way of ONNX, or ImportRefused with the reason."""
    if not isinstance(x.type, Vector) or x.type.dtype == "string":
        raise UnsupportedSetting("skl2onnx is asked for steps over numbers only", found=str(x.type))
    if x.type.sparse or rows.ndim != 2:
        raise UnsupportedSetting("ONNX has no sparse vectors", found=str(x.type))
    reasons = []
    wanted = (x.type.dtype, *FLOATS[::-1]) if x.type.dtype in FLOATS else FLOATS[::-1]
    for dtype in wanted:
        try:
            return _agreeing(estimator, x, rows, dtype)
        except ImportRefused as problem:
            found = f" ({problem.found})" if problem.found else ""
            reasons.append(f"{dtype}: {problem.what}{found}"[:160])
    raise UnsupportedSetting(
        "it does not go through ONNX either", found="; ".join(dict.fromkeys(reasons))
    )


def _agreeing(estimator: Fitted, x: Flow, rows: NDArray[Any], dtype: str) -> Flow | dict[str, Flow]:
    model = _converted(estimator, rows.shape[1], dtype)
    try:
        from flour.onnx import from_onnx  # few models go this way

        program = from_onnx(model)
    except ImportError:
        what = "onnx is not installed, which may read it: install pretzel-runtime[onnx]"
        raise UnsupportedSetting(what) from None
    (own,) = program.inputs()
    program_outputs = {
        name: grafted(flow, {own: x.cast(dtype)})
        for name, flow in _named(estimator, program).items()
    }
    _gate(
        estimator, rows, {n: grafted(f, {}) for n, f in _named(estimator, program).items()}, dtype
    )
    return program_outputs["features"] if set(program_outputs) == {"features"} else program_outputs


def _converted(estimator: Fitted, width: int, dtype: str) -> bytes:
    """The ONNX model that skl2onnx makes of a fitted estimator."""
    try:
        from skl2onnx import to_onnx
        from skl2onnx.common import data_types
    except ImportError:
        what = "skl2onnx is not installed, which may convert it: install pretzel-runtime[onnx]"
        raise UnsupportedSetting(what) from None
    kind = data_types.DoubleTensorType if dtype == "float64" else data_types.FloatTensorType
    options = {id(estimator): {"zipmap": False}} if _has_probabilities(estimator) else None
    with _conversion():
        model = to_onnx(estimator, initial_types=[(_INPUT, kind([None, width]))], options=options)
    data: bytes = model.SerializeToString()
    return data


@contextmanager
def _conversion() -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as problem:
        said = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise UnsupportedSetting("skl2onnx does not convert it", found=said[:120]) from problem


def _has_probabilities(estimator: Fitted) -> bool:
    return hasattr(estimator, "predict_proba") and hasattr(estimator, "classes_")


def _named(estimator: Fitted, program: Flow) -> dict[str, Flow]:
    """The program's outputs under an importer's names for them."""
    flows = [program[name] for name in program.outputs]
    if _has_probabilities(estimator) and len(flows) == 2:
        return {"label": _single(flows[0]), "probabilities": flows[1]}
    if hasattr(estimator, "predict"):
        from sklearn.base import is_regressor

        return {"value" if is_regressor(estimator) else "label": _single(flows[0])}
    return {"features": flows[0]}


def _single(flow: Flow) -> Flow:
    """One answer a row is a number, not a vector of one."""
    kind = flow.type
    return flow.element(0) if isinstance(kind, Vector) and kind.width == 1 else flow


def grafted(flow: Flow, inputs: Mapping[str, Flow]) -> Flow:
    """The program with flows in place of its inputs."""

    def change(old: Node, below: tuple[Node, ...]) -> Node:
        if isinstance(old.op, Source) and old.op.label in inputs:
            return inputs[old.op.label].node
        return node(old.op, below)

    (result,) = rebuild(flow.outputs.values(), change)
    return Flow({"output": result}, flow.origin, (flow, *inputs.values()))


METHODS = {
    "label": "predict",
    "value": "predict",
    "probabilities": "predict_proba",
    "features": "transform",
}


def _gate(estimator: Fitted, rows: NDArray[Any], flows: Mapping[str, Flow], dtype: str) -> None:
    """Refuse unless every output answers the rows as the estimator's own method does."""
    if not len(rows):
        raise UnsupportedSetting("the sample has no rows to compare answers on")
    for name, flow in flows.items():
        want = np.asarray(getattr(estimator, METHODS[name])(rows))
        want = want.ravel() if name in ("label", "value") and want.shape[1:] == (1,) else want
        try:
            got = np.asarray(flow.reference(rows.astype(dtype))["output"])
        except FlourError as problem:
            raise UnsupportedSetting("it does not run", found=str(problem)[:120]) from problem
        if not _same(got, want):
            raise UnsupportedSetting(
                f"what comes of that answers another {name}", found=_difference(got, want)
            )


def _same(got: Any, want: Any) -> bool:
    if got.shape != want.shape:
        return False
    if want.dtype.kind in "OUSb":
        return bool((got == want).all())
    largest = np.abs(want[np.isfinite(want)], dtype=np.float64).max(initial=0.0)
    return bool(np.allclose(got, want, rtol=0, atol=TOLERANCE * largest, equal_nan=True))


def _difference(got: Any, want: Any) -> str:
    if got.shape != want.shape:
        return f"shape {got.shape} for {want.shape}"
    if want.dtype.kind in "OUSb":
        return f"{int((got != want).sum())} of {want.size} differ"
    return f"differences of up to {np.nanmax(np.abs(got - want.astype(np.float64))):.3g}"
