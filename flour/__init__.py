"""Flour: what a prediction pipeline is, as a typed dataflow program.

    import flour

    x = flour.vector("x", 20)
    program = x.subtract(mean).divide(scale).linear(weights, bias).sigmoid()
    program.reference(rows)          # numpy, the definition
    oven.bake(program).run(rows)     # native code

`from_sklearn`, `from_onnx` and their like write such programs from models trained elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flour.core.errors import FlourError
from flour.core.model_formats import FORMATS, ModelFormat, importing, register
from flour.core.modules import imported
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
    from flour.boosters.catboost import from_catboost
    from flour.boosters.lightgbm import from_lightgbm
    from flour.boosters.xgboost import from_xgboost
    from flour.embeddings import from_embedding
    from flour.language.adapters import adapts
    from flour.language.graph_file import load_graph, save_graph
    from flour.language.graphs import ensemble, fetch, first_match, model, plan, repeat, switch
    from flour.language.remote import call
    from flour.language.show_html import show
    from flour.language.until_sure import until_sure
    from flour.onnx import from_onnx
    from flour.onnx.export.writer import to_onnx
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
    "adapts",
    "call",
    "category",
    "concat",
    "csv",
    "ensemble",
    "fetch",
    "first_match",
    "from_catboost",
    "from_embedding",
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
    "show",
    "switch",
    "text",
    "to_onnx",
    "tokens",
    "until_sure",
    "vector",
    "where",
]

#: The importers, by the files that they read: `from_lightgbm` and so on.
register(
    ModelFormat("lightgbm", (".txt", ".lgb", ".bst", ".model"), begins=b"tree"),
    "flour.boosters.lightgbm",
)
register(
    ModelFormat("xgboost", (".json", ".ubj", ".model", ".bst", ".xgb", ".deprecated")),
    "flour.boosters.xgboost",
)
register(
    ModelFormat(
        "catboost", (".json", ".cbm"), begins=(b'{\n  "features_in', b'{\n  "ctr_data"', b"CBM")
    ),
    "flour.boosters.catboost",
)
register(ModelFormat("onnx", (".onnx",)), "flour.onnx")
register(ModelFormat("sklearn", (".joblib", ".pkl", ".pickle")), "flour.sklearn.importer")
register(ModelFormat("skops", (".skops",)), "flour.sklearn.skops_file")
register(ModelFormat("embedding", ()), "flour.embeddings")


#: Modules of functions that few processes need.
_LATER = {
    "adapts": "flour.language.adapters",
    "call": "flour.language.remote",
    **dict.fromkeys(("load_graph", "save_graph"), "flour.language.graph_file"),
    **dict.fromkeys(
        ("ensemble", "fetch", "first_match", "model", "plan", "repeat", "switch"),
        "flour.language.graphs",
    ),
    "show": "flour.language.show_html",
    "to_onnx": "flour.onnx.export.writer",
    "until_sure": "flour.language.until_sure",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(imported(_LATER[name]), name)
    form = name.removeprefix("from_")
    if form != name and form in FORMATS:
        return getattr(importing(form), name)
    raise AttributeError(f"module 'flour' has no attribute {name!r}")
