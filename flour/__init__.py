"""Flour: what a prediction pipeline is, as a typed dataflow program.

    import flour

    x = flour.vector("x", 20)
    program = x.subtract(mean).divide(scale).linear(weights, bias).sigmoid()
    program.reference(rows)          # numpy, the definition
    program.plan().run(rows)         # native code

`from_sklearn`, `from_onnx` and their like write such programs from models trained elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flour.core.errors import FlourError
from flour.core.extension_points import declare, extension
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


#: What the language and its operators call although it stands above them: one line each, imported
#: when it is first asked for. `flour.core.extension_points` says how.
for _point, _places in {
    "apply": ("flour.language.flow:apply",),
    "operators": ("flour.ops:load",),
    "column": ("flour.ops.record:column",),
    "columns": ("flour.ops.record:columns",),
    "take": ("flour.ops.structure:take",),
    "adapters": ("flour.ops:load", "flour.sklearn.estimators:load", "flour.boosters:load"),
    "opaque_session": ("flour.onnx.ort:Held",),
    "onnx_model": ("flour.onnx.export.writer:to_onnx",),
    "native_plan": ("oven:bake",),
    "from_lightgbm": ("flour.boosters.lightgbm:from_lightgbm",),
    "from_onnx": ("flour.onnx:from_onnx",),
    "from_sklearn": ("flour.sklearn.importer:from_sklearn",),
    "from_xgboost": ("flour.boosters.xgboost:from_xgboost",),
}.items():
    declare(_point, *_places)


def __getattr__(name: str) -> object:
    if name.startswith("from_") and name in __all__:
        return extension(name)
    raise AttributeError(f"module 'flour' has no attribute {name!r}")
