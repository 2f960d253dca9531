"""What would end the process inside onnxruntime is refused before it is there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import runtime
from flour.core.errors import FlourError, OpaqueFailed
from flour.onnx import from_onnx
from flour.sessions import proving as proving_module
from flour.sessions.guards import guard
from flour.sessions.proving import prove, proving
from runtime.onnx import backend
from tests.onnx_models import ml, model, node
from tests.onnx_parts import black_in_the_middle

ROWS: dict[str, Any] = {"x": ("float32", [None, 4])}


def vectorizer() -> Any:
    """Widths of inputs, one of them negative."""
    nodes = [ml("FeatureVectorizer", ["x", "x", "x"], ["y"], inputdimensions=[1, -1, 0])]
    return model(nodes, ROWS, {"y": "float32"})


def heads() -> Any:
    """Attention with no heads at all."""
    given: dict[str, Any] = {name: ("float32", [2, 4, 24]) for name in "qkv"}
    nodes = [node("Attention", ["q", "k", "v"], ["y"], q_num_heads=3, kv_num_heads=0)]
    return model(nodes, given, {"y": "float32"}, opsets={"": 23})


def groups() -> Any:
    """A convolution of no groups."""
    nodes = [node("ConvTranspose", ["x", "w"], ["y"], group=0)]
    constants = {"w": np.ones((3, 3, 3, 3), np.float32)}
    given: dict[str, Any] = {"x": ("float32", [1, 3, 7, 6])}
    return model(nodes, given, {"y": "float32"}, constants=constants)


def grams(**how: Any) -> Any:
    """A pool of n-grams that its other lists do not fit."""
    fine = {
        "max_gram_length": 2,
        "max_skip_count": 0,
        "min_gram_length": 2,
        "mode": "TF",
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
    }
    nodes = [node("TfIdfVectorizer", ["x"], ["y"], **{**fine, **how})]
    return model(nodes, {"x": ("int64", [12])}, {"y": "float32"})


def batches() -> Any:
    """A number of batch dimensions below zero."""
    nodes = [node("GatherND", ["x", "i"], ["y"], batch_dims=-(2**31))]
    given: dict[str, Any] = {"x": ("int32", [2, 2, 2]), "i": ("int64", [2, 1])}
    return model(nodes, given, {"y": "int32"})


def parts() -> Any:
    """A split into another number of parts than there are."""
    nodes = [node("Split", ["x"], ["a", "b"], num_outputs=1)]
    return model(nodes, {"x": ("float32", [6])}, {"a": "float32", "b": "float32"}, opsets={"": 18})


def left_out() -> Any:
    """The larger of a value and of nothing."""
    return model([node("Max", ["x", ""], ["y"])], ROWS, {"y": "float32"})


def no_axis() -> Any:
    """A transform along an axis that is an input without a name."""
    nodes = [node("DFT", ["x", "", ""], ["y"])]
    return model(nodes, {"x": ("float32", [1, 10, 10, 1])}, {"y": "float32"}, opsets={"": 20})


def round_in_circles(mode: str = "BRANCH_LEQ") -> Any:
    """A tree whose second test leads back to the first."""
    lists: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 1, 0],
        "nodes_values": [0.0, 0.0, 0.0],
        "nodes_modes": [mode, mode, "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0],
        "target_nodeids": [2],
        "target_ids": [0],
        "target_weights": [1.0],
    }
    return model([ml("TreeEnsembleRegressor", ["x"], ["y"], **lists)], ROWS, {"y": "float32"})


def round_among_tests() -> Any:
    """Likewise in the operator whose leaves are apart."""
    lists: dict[str, Any] = {
        "tree_roots": [0],
        "nodes_featureids": [0, 1],
        "nodes_splits": numpy_helper.from_array(np.zeros(2, np.float32)),
        "nodes_modes": numpy_helper.from_array(np.zeros(2, np.uint8)),
        "nodes_truenodeids": [1, 0],
        "nodes_trueleafs": [0, 0],
        "nodes_falsenodeids": [0, 0],
        "nodes_falseleafs": [1, 0],
        "leaf_targetids": [0],
        "leaf_weights": numpy_helper.from_array(np.ones(1, np.float32)),
        "n_targets": 1,
    }
    nodes = [ml("TreeEnsemble", ["x"], ["y"], **lists)]
    return model(nodes, ROWS, {"y": "float32"}, opsets={"": 18, "ai.onnx.ml": 5})


def targets() -> Any:
    """More targets than any memory has room for."""
    made = round_in_circles()
    made.graph.node[0].attribute.add(name="n_targets", type=2, i=2**31 - 1)
    return made


DEADLY: dict[str, Any] = {
    "widths": vectorizer(),
    "heads": heads(),
    "groups": groups(),
    "indexes": grams(ngram_indexes=[0, 1]),
    "gaps": grams(max_skip_count=2**62),
    "batches": batches(),
    "parts": parts(),
    "left out": left_out(),
    "no axis": no_axis(),
    "circle": round_in_circles(),
    "circle of tests": round_among_tests(),
    "targets": targets(),
}

#: What has a meaning all the same, and native code for it.
OURS = {"gaps", "parts"}

#: Runs a model by onnxruntime alone, on ones.
_ALONE = """
import sys, resource, signal
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
signal.alarm(3)
import numpy as np, onnxruntime as ort
session = ort.InferenceSession(sys.stdin.buffer.read())
kinds = {"float": "float32"}
feed = {
    i.name: np.ones([n if isinstance(n, int) else 2 for n in i.shape],
                    kinds.get(i.type[7:-1], i.type[7:-1]))
    for i in session.get_inputs()
}
session.run(None, feed)
"""


@pytest.mark.parametrize("name", DEADLY)
def test_deadly_models_are_refused(name: str) -> None:
    data = DEADLY[name].SerializeToString()
    try:
        from_onnx(data, native_only=True)
    except FlourError:
        with pytest.raises(FlourError) as caught:
            from_onnx(data)
        assert caught.value.where
        with pytest.raises(FlourError):
            runtime.InferenceSession(data)
    else:
        assert name in OURS


@pytest.mark.parametrize("name", DEADLY)
def test_what_is_guarded_has_a_reason(name: str) -> None:
    with pytest.raises(OpaqueFailed, match="would not survive") as caught:
        guard(DEADLY[name], "here")
    assert caught.value.found
    assert caught.value.hint
    assert caught.value.where == "here"


def test_onnxruntime_does_die_of_one() -> None:
    data = DEADLY["heads"].SerializeToString()
    done = subprocess.run(
        [sys.executable, "-c", _ALONE], input=data, capture_output=True, timeout=180, check=False
    )
    if done.returncode >= 0:
        pytest.skip("this onnxruntime survives it")
    with proving(), pytest.raises(OpaqueFailed, match="does not survive"):
        prove(data, "here")


@pytest.mark.parametrize("load", [from_onnx, runtime.InferenceSession, backend.prepare])
def test_parts_are_proven_where_that_is_asked(
    load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proving_module, "_death", lambda _: "a process of it ended")
    data = black_in_the_middle(hidden=8).SerializeToString()
    load(data)
    with pytest.raises(FlourError, match="does not survive"):
        load(data, prove=True)


def test_proving_lets_what_lives_pass() -> None:
    flow = from_onnx(black_in_the_middle(hidden=8).SerializeToString(), prove=True)
    assert flow.inputs()
    prove(DEADLY["heads"].SerializeToString(), "nobody asked")


def test_inner_graphs_are_looked_at() -> None:
    inner = helper.make_graph([vectorizer().graph.node[0]], "inner", [], [])
    outer = model([node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)], {}, {})
    with pytest.raises(OpaqueFailed):
        guard(outer, "")
