"""ONNX models as programs: `from_onnx(path_or_bytes_or_model)`.

reading   files, bytes and protobufs, checked, as plain data (`model`)
tensor    ONNX's tensors seen from inside a program that computes one row at a time
registry  the adapter of each operator; the modules of adapters register themselves
importer  walks the model
program   the conversion of ONNX's arrays to rows and back
"""

from __future__ import annotations

from flour.onnx.errors import DamagedModel, NotNative
from flour.onnx.importer import from_onnx, import_model
from flour.onnx.program import OnnxProgram

__all__ = ["DamagedModel", "NotNative", "OnnxProgram", "from_onnx", "import_model"]
