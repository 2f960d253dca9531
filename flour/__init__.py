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
from flour.core.model_formats import FORMATS, ModelFormat, register
from flour.core.types import Category, Pairs, Record, Scalar, Text, Tokens, Type, Vector, Whole
from flour.language.flow import Flow, outputs, where
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
    from flour.language.graph_file import load_graph, save_graph
    from flour.language.graphs import ensemble, fetch, first_match, model, plan, repeat, switch
    from flour.language.remote import call
    from flour.onnx import from_onnx
    from flour.sklearn.importer import from_sklearn
    from flour.sklearn.skops_file import from_skops

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
    "call",
    "category",
    "concat",
    "csv",
    "ensemble",
    "fetch",
    "first_match",
    "from_lightgbm",
    "from_onnx",
    "from_sklearn",
    "from_skops",
    "from_xgboost",
    "load_graph",
    "model",
    "outputs",
    "pairs",
    "plan",
    "record",
    "repeat",
    "save_graph",
    "scalar",
    "switch",
    "text",
    "tokens",
    "vector",
    "where",
]


#: What the language and its operators call although it stands above them: one line each, imported
#: when it is first asked for. `flour.core.extension_points` says how.
for _point, _places in {
    "apply": ("flour.language.flow:apply",),
    "operators": ("flour.modules:load_operator",),
    "bundle": ("flour.ops.record:bundle",),
    "column": ("flour.ops.record:column",),
    "columns": ("flour.ops.record:columns",),
    "take": ("flour.ops.structure:take",),
    "show": ("flour.language.show_html:show",),
    "adapters": ("flour.modules:load_adapter",),
    "onnx_adapters": ("flour.modules:load_onnx",),
    "opaque_session": ("flour.onnx.ort:Held",),
    "onnx_model": ("flour.onnx.export.writer:to_onnx",),
    "native_plan": ("oven:bake",),
    "load_plan": ("oven:load",),
    "late_flow": ("flour.language.late:LateFlow",),
    "graph": ("flour.language.graphs:word",),
    "graph_file": ("flour.language.graph_file:word",),
    "remote_model": ("flour.language.remote:word",),
}.items():
    declare(_point, *_places)

#: The importers, by the files that they read: `from_lightgbm` and so on.
_ORIGINALS = "flour.sklearn.originals"
register(
    ModelFormat("lightgbm", (".txt", ".lgb", ".bst", ".model"), begins=b"tree"),
    "flour.boosters.lightgbm",
    f"{_ORIGINALS}:lightgbm_answers",
)
register(
    ModelFormat("xgboost", (".json", ".ubj", ".model", ".bst", ".xgb", ".deprecated")),
    "flour.boosters.xgboost",
    f"{_ORIGINALS}:xgboost_answers",
)
register(ModelFormat("onnx", (".onnx",)), "flour.onnx", f"{_ORIGINALS}:onnx_answers")
register(
    ModelFormat("sklearn", (".joblib", ".pkl", ".pickle"), runs_code=True),
    "flour.sklearn.importer",
    f"{_ORIGINALS}:estimator_answers",
)
register(ModelFormat("skops", (".skops",)), "flour.sklearn.skops_file")


#: The words of graphs, by the extension point that has them: imported when the first one is used.
_GRAPHS = {
    **dict.fromkeys(
        ("ensemble", "fetch", "first_match", "model", "plan", "repeat", "switch"), "graph"
    ),
    **dict.fromkeys(("load_graph", "save_graph"), "graph_file"),
    "call": "remote_model",
}


def __getattr__(name: str) -> object:
    if name in _GRAPHS:
        return extension(_GRAPHS[name])(name)
    if name.startswith("from_") and name.removeprefix("from_") in FORMATS:
        return extension(name)
    raise AttributeError(f"module 'flour' has no attribute {name!r}")
