"""onnxruntime tuned as its docs advise for small models: one thread, float32, no zipmap."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from bench.contestant import Contestant, Model, Unsupported, float32_block, float32_row
from bench.inputs import TABLE, TEXT, Inputs
from bench.workload import Pipeline, Saved


class OnnxRuntime(Contestant):
    """One session for each pipeline."""

    name = "onnxruntime"
    title = "onnxruntime (tuned)"
    packages = ("onnxruntime", "onnx", "skl2onnx", "numpy")
    settings = "one thread a session, sequential, zipmap off, float32 inputs"

    def prepare(self, pipeline: Pipeline, saved: Saved) -> None:
        """Convert with skl2onnx, and by hand what that cannot."""
        path = pipeline.file("onnx")
        if path.exists():
            return
        from bench.onnx_export import export

        try:
            path.write_bytes(export(pipeline.estimator(), saved.inputs))
        except (RuntimeError, NotImplementedError, ValueError) as problem:
            raise Unsupported(f"no ONNX model: {problem}"[:200]) from problem

    def session_options(self) -> Any:
        """As tuned for calls of one row."""
        from onnxruntime import ExecutionMode, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4
        return options

    def start(self) -> None:
        """Import the library."""
        import onnxruntime as _  # noqa: F401

    def load(self, pipeline: Pipeline, saved: Saved) -> Model:
        """Make a session."""
        from onnxruntime import InferenceSession

        session = InferenceSession(
            str(pipeline.file("onnx")), self.session_options(), ["CPUExecutionProvider"]
        )
        wanted = [session.get_outputs()[-1].name]
        call = partial(session.run, wanted)
        second = saved.facts["answers"] == "probability"
        scores = partial(_scores, second=second)
        kind = saved.inputs.kind
        row, block = (_row, _block) if kind in {TABLE, TEXT} else (_number_row, _number_block)
        return Model(call, call, row, block, scores, lambda raw: float(scores(raw)[0]))


def _scores(raw: Any, *, second: bool) -> Any:
    values = np.asarray(raw[0])
    if values.ndim == 2 and values.shape[1] == 2 and second:
        return values[:, 1]
    return values.reshape(len(values))


def _number_row(inputs: Inputs, place: int) -> Any:
    return {"X": float32_row(inputs, place)}


def _number_block(inputs: Inputs, start: int, stop: int) -> Any:
    return {"X": float32_block(inputs, start, stop)}


def _row(inputs: Inputs, place: int) -> Any:
    return _block(inputs, place, place + 1)


def _block(inputs: Inputs, start: int, stop: int) -> Any:
    if inputs.kind == TEXT:
        return {"X": np.array(inputs.data[start:stop], object).reshape(-1, 1)}
    table = inputs.data
    columns = {name: table.column(name, start, stop).reshape(-1, 1) for name in table.columns}
    return {
        name: column.astype(np.float32) if name in table.numeric else column
        for name, column in columns.items()
    }


CONTESTANT = OnnxRuntime
