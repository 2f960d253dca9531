"""The classes of ONNX's protobuf, without the rest of the `onnx` package.

Importing that package reads checkers, helpers and converters, 60 ms and 10 MB that a model which is
only read does not need. Its module of classes stands on its own; whoever imports the package later
gets the same classes.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from flour.core.errors import FlourError

_NAME = "onnx.onnx_ml_pb2"


def _alone() -> ModuleType | None:
    """The module by itself; None where the package is there already or keeps it elsewhere."""
    package = None if "onnx" in sys.modules else find_spec("onnx")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder) / "onnx_ml_pb2.py"
        spec = spec_from_file_location(_NAME, path) if path.exists() else None
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return sys.modules.setdefault(_NAME, module)
    return None


try:
    _classes: Any = _alone() or import_module("onnx")
except ImportError as problem:
    raise FlourError(
        "ONNX models need the package onnx, which is not installed",
        found=str(problem),
        hint="pip install 'pretzel-runtime[onnx]'",
    ) from problem
ModelProto = _classes.ModelProto
