"""onnxruntime, of a model that skl2onnx converts first, or of an ONNX model."""

from __future__ import annotations

import json
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


def _converted(model: Any, rows: Any) -> tuple[bytes, dict[str, Any]]:
    """The model as ONNX, and its feed."""
    import skl2onnx
    from skl2onnx.common import data_types as kinds

    if isinstance(rows, np.ndarray):
        inputs, feed = [("X", kinds.DoubleTensorType([None, rows.shape[1]]))], {"X": rows}
    elif isinstance(rows, list):
        inputs = [("X", kinds.StringTensorType([None, 1]))]
        feed = {"X": np.array(rows, object)[:, None]}
    else:
        columns = {name: _plain(rows[name].to_numpy()) for name in rows.columns}
        made = {
            "O": kinds.StringTensorType,
            "i": kinds.Int64TensorType,
            "f": kinds.DoubleTensorType,
        }
        inputs = [(name, made[column.dtype.kind]([None, 1])) for name, column in columns.items()]
        feed = {name: column[:, None] for name, column in columns.items()}
    proto = skl2onnx.convert_sklearn(model, initial_types=inputs, options={"zipmap": False})
    return proto.SerializeToString(), feed


def _plain(column: Any) -> Any:
    return column if column.dtype.kind in "if" else column.astype(object)


folder = Path(sys.argv[1])
given, rows, _ = pickle.loads((folder / "model.pickle").read_bytes())
if not isinstance(given, bytes):
    import skl2onnx.convert  # noqa: F401 (before the clock)
start = time.perf_counter()
data, feed = (given, {"X": rows}) if isinstance(given, bytes) else _converted(given, rows)
onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feed)
print(json.dumps({"first": time.perf_counter() - start, "at": time.time()}))
