"""ONNX models that other people exported, where a collection of them lies beside the checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oven
from flour.onnx import import_model
from objectstore import MemoryStore, Strings
from tests.house import ROOT
from tests.onnx_models import agree, answered, has_locale, onnx, same

MODELS = ROOT.parent / "shared" / "data" / "models" / "onnx"
pytestmark = pytest.mark.skipif(not MODELS.is_dir(), reason="no collection of models here")

#: What has as many columns as a map has keys, open shapes, dropped rows, or rows that are mixed.
_NOT_NATIVE = {
    *{"castmap-int64", "zipmap_int64float", "zipmap_stringfloat", "newsgroups_2xtfidf_lr"},
    *{"logreg_iris", "lgbm_classifier_tensor", "lgbm_regressor_tensor"},
}
_WORDS = ["Hello WIN a prize!!", "dinner tonight? Hi hi", "İstanbul congratulations_", "", "won"]


def _name(path: Path) -> str:
    return path.parent.name if path.stem == "model" else path.stem


def _found(*, native: bool = True) -> list[Any]:
    paths = sorted(MODELS.rglob("*.onnx"))
    kept = [path for path in paths if (_name(path) not in _NOT_NATIVE) is native]
    return [pytest.param(path, id=_name(path)) for path in kept] or [MODELS]


def _random(port: Any, rng: np.random.Generator) -> Any:
    """Values for an input: as many rows as its shape leaves open, or one map."""
    if port.type.WhichOneof("value") == "map_type":
        keys = rng.integers(0, 12, 6).tolist()
        text = port.type.map_type.key_type == onnx.TensorProto.STRING
        return {str(key) if text else key: float(rng.normal()) for key in keys}
    kind = port.type.tensor_type
    shape = [item.dim_value or 5 for item in kind.shape.dim]
    if kind.elem_type == onnx.TensorProto.STRING:
        return rng.choice(np.array(_WORDS, object), shape)
    if kind.elem_type == onnx.TensorProto.INT64:
        return rng.integers(-3, 5, shape)
    dtype = np.float64 if kind.elem_type == onnx.TensorProto.DOUBLE else np.float32
    return (rng.normal(size=shape) * 3).astype(dtype)


@pytest.mark.parametrize("path", _found())
def test_models_answer_as_onnxruntime_does(path: Path) -> None:
    proto = onnx.load(path)
    if any(node.op_type == "StringNormalizer" for node in proto.graph.node) and not has_locale():
        pytest.skip("onnxruntime needs the locale en_US.UTF-8 for text (apt: locales)")
    rng = np.random.default_rng(0)
    same(proto, {port.name: _random(port, rng) for port in proto.graph.input}, rtol=1e-5)


@pytest.mark.parametrize("path", [p for p in _found() if p is MODELS or "xgboost" in str(p.id)])
def test_models_give_the_answers_stored_with_them(path: Path) -> None:
    with np.load(path.with_name("io.npz")) as stored:
        values = dict(stored)
    program = import_model(path, native_only=True)
    got = answered(program, {"input": values.pop("input")}, native=False)
    for name, want in values.items():
        agree(got[name].reshape(want.shape), want, name, 1e-5, 1e-6)


def test_weight_sets_of_one_pipeline_share_vocabulary_and_code() -> None:
    paths = sorted((MODELS / "khoribz_sms_tfidf_lr").glob("*.onnx"))
    plans = [oven.bake(import_model(path, native_only=True).flow) for path in paths]
    assert len(plans) == 8
    sources = {tuple(stage.source for stage in plan.program.stages) for plan in plans}
    assert len(sources) == 1, "one structure is one piece of code"
    vocabularies = {_vocabulary(plan) for plan in plans}
    assert len(vocabularies) < len(plans), "weight sets of one vocabulary share its bytes"
    store = MemoryStore()
    for path, plan in zip(paths, plans, strict=True):
        store.hold(path.stem, plan.program.parameters())
    for path in paths:
        # Class labels, tables of letters, automata: all of it is there once.
        assert store.shared_bytes(path.stem) > 4 * store.own_bytes(path.stem)


def _vocabulary(plan: oven.Plan) -> str:
    """The digest of the longest table of strings."""
    tables = [item for item in plan.program.parameters() if isinstance(item, Strings)]
    return max(tables, key=len).digest
