"""Flour: what a prediction pipeline is, as a typed dataflow program.

    import flour

    x = flour.vector("x", 20)
    program = x.subtract(mean).divide(scale).linear(weights, bias).sigmoid()
    program.reference(rows)          # numpy, the definition
    program.plan().run(rows)         # native code

`from_sklearn`, `from_onnx` and their like write such programs from models trained elsewhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from flour.core.errors import FlourError
from flour.core.types import Category, Pairs, Record, Scalar, Text, Tokens, Type, Vector, Whole
from flour.language.flow import Flow, outputs
from flour.language.sources import (
    category,
    concat,
    csv,
    pairs,
    record,
    scalar,
    text,
    tokens,
    vector,
)

if TYPE_CHECKING:
    from flour.boosters.lightgbm import from_lightgbm
    from flour.boosters.xgboost import from_xgboost
    from flour.onnx import from_onnx
    from flour.sklearn.importer import from_sklearn

__all__ = [
    "Category",
    "FlourError",
    "Flow",
    "Pairs",
    "Record",
    "Scalar",
    "Text",
    "Tokens",
    "Type",
    "Vector",
    "Whole",
    "category",
    "concat",
    "csv",
    "from_lightgbm",
    "from_onnx",
    "from_sklearn",
    "from_xgboost",
    "outputs",
    "pairs",
    "record",
    "scalar",
    "text",
    "tokens",
    "vector",
]


#: Importers are loaded when first asked for: most processes only serve.
_IMPORTERS = {
    "from_lightgbm": "flour.boosters.lightgbm",
    "from_onnx": "flour.onnx",
    "from_sklearn": "flour.sklearn.importer",
    "from_xgboost": "flour.boosters.xgboost",
}


def __getattr__(name: str) -> object:
    if name in _IMPORTERS:
        return getattr(import_module(_IMPORTERS[name]), name)
    raise AttributeError(f"module 'flour' has no attribute {name!r}")
