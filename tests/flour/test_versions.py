"""A model that was trained further shares with its former version what both are made of."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier

import flour
import oven
from flour.core.chunked_array import PIECE_BYTES, Pieces, in_pieces
from flour.core.errors import DamagedProgram, ParameterError
from flour.core.op import Parameter, from_data, to_data
from flour.language.flow import Flow
from flour.ops.trees.trees import Trees
from objectstore import Blob, FileStore, MemoryStore, Store
from tests.ensembles import chains

rng = np.random.default_rng(11)
X = rng.normal(size=(1500, 12))
Y = 2 * X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3] + rng.normal(size=1500)


def lightgbm_versions() -> tuple[Any, Any, Any]:
    how = {"num_leaves": 31, "verbose": -1, "num_threads": 1, "deterministic": True}
    data = lgb.Dataset(X, Y, free_raw_data=False)
    first = lgb.train(how, data, 150)
    second = lgb.train(how, data, 20, init_model=first)
    return flour.from_lightgbm(first), flour.from_lightgbm(second), second.predict(X)


def xgboost_versions() -> tuple[Any, Any, Any]:
    data, how = xgb.DMatrix(X, Y), {"max_depth": 6, "nthread": 1}
    first = xgb.train(how, data, 150)
    second = xgb.train(how, data, 20, xgb_model=first)
    return flour.from_xgboost(first), flour.from_xgboost(second), second.predict(data)


def _grown(model: Any, target: Any, more: int) -> tuple[Flow, Flow, Any]:
    first = flour.from_sklearn(model.fit(X, target), X)
    model.set_params(n_estimators=model.n_estimators + more).fit(X, target)
    return first, flour.from_sklearn(model, X), model


def forest_versions() -> tuple[Any, Any, Any]:
    model = RandomForestClassifier(60, max_depth=9, warm_start=True, random_state=0)
    first, second, model = _grown(model, Y > 0, 8)
    return first, second, model.predict_proba(X)


def boosting_versions() -> tuple[Any, Any, Any]:
    model = GradientBoostingRegressor(n_estimators=150, max_depth=6, warm_start=True)
    first, second, model = _grown(model, Y, 20)
    return first, second, model.predict(X)


def written(program: Flow) -> set[Parameter]:
    return {parameter for item in program.nodes() for parameter in item.op.parameters()}


def stored(store: Store) -> int:
    return sum(store.nbytes(digest) for digest in store.digests())


@pytest.mark.parametrize(
    "versions", [lightgbm_versions, xgboost_versions, forest_versions, boosting_versions]
)
def test_trees_are_stored_once(versions: Any, tmp_path: Path) -> None:
    """Both versions take what the second takes alone, and a little for where the first ends."""
    first, second, wanted = versions()
    with FileStore(tmp_path / "two", durable=False) as two, MemoryStore() as alone:
        two.hold("model@1", written(first))
        size = stored(two)
        two.hold("model@2", written(second))
        alone.hold("model@2", written(second))
        assert stored(two) <= stored(alone) + size // 8
        assert two.own_bytes("model@1") < two.shared_bytes("model@1") / 6
        # What is left when the first has gone is the second.
        two.release("model@1")
        assert two.own_bytes("model@2") == stored(alone)
    output = "probabilities" if "probabilities" in second.types else "value"
    said = oven.bake(second, exact=True).run(X)[output]
    np.testing.assert_allclose(said, wanted, rtol=1e-12 if said.dtype == np.float64 else 3e-7)


@given(st.integers(1, 40_000), st.integers(0, 40_000), st.sampled_from(["<f8", "|u1"]))
def test_the_beginning_is_shared(count: int, more: int, dtype: str) -> None:
    """All pieces but the last are pieces of whatever the array becomes the beginning of."""
    long = np.arange(count + more).astype(dtype)
    first, second = in_pieces(long[:count]), in_pieces(long)
    np.testing.assert_array_equal(first.array, long[:count])
    np.testing.assert_array_equal(second.array, long)
    assert isinstance(first, Pieces) == (long[:count].nbytes > PIECE_BYTES)
    if isinstance(first, Pieces):
        assert isinstance(second, Pieces)
        assert first.parts[:-1] == second.parts[: len(first.parts) - 1]
        assert first.parts[-1].nbytes <= max(PIECE_BYTES, first.nbytes // 16)
        assert (first == second) == (more == 0)


def test_pieces_are_the_same_array_however_they_come() -> None:
    """From an array, a blob, pieces, or as data, as a file holds them."""
    op = chains(300, 7, 4)
    threshold = op.threshold
    assert isinstance(threshold, Pieces)
    assert len(threshold) == threshold.array.size == len(op.feature)
    assert op.replace(threshold=Blob.of(threshold.array)) == op
    assert op.replace(threshold=threshold.parts) == op
    known = {parameter.digest: parameter for parameter in op.parameters()}
    assert from_data(to_data(op), known.__getitem__) == op


def test_the_whole_is_let_go() -> None:
    """Only the pieces stay in memory."""
    threshold = chains(300, 7, 4).threshold
    seen = threshold.array
    assert threshold.array is seen
    held = weakref.ref(seen)
    del seen
    assert held() is None


def test_pieces_that_do_not_fit() -> None:
    """Pieces come from files of anybody: of several dtypes or shapes they are refused."""
    op, other = chains(3, 7, 4), Blob.of(np.zeros((3, 2)))
    for parts in ((other, Blob.of(np.zeros((3, 3)))), (other, Blob.of(np.zeros(3, np.int8)))):
        with pytest.raises(ParameterError, match="one dtype"):
            op.replace(threshold=parts)
    with pytest.raises(ParameterError):
        op.replace(threshold=(Blob.of(3.0),))
    with pytest.raises(ParameterError, match="every node"):
        op.replace(threshold=(op.threshold, op.threshold))
    name, fields = to_data(op)
    known: dict[str, Parameter] = {parameter.digest: parameter for parameter in op.parameters()}
    known |= {"a": Blob.of([1.0]), "b": Blob.of([1])}
    data = [name, fields | {"threshold": [{"parameter": "a"}, {"parameter": "b"}]}]
    with pytest.raises(DamagedProgram, match="cannot be made"):
        from_data(data, known.__getitem__)


def test_saved_and_loaded(tmp_path: Path) -> None:
    """A plan in pieces is the same plan in a file."""
    op: Trees = chains(300, 7, 4)
    plan = oven.bake(flour.outputs(y=op(flour.vector("X", 4))))
    plan.save(tmp_path / "a.plan")
    again = oven.load(tmp_path / "a.plan")
    assert again.digest == plan.digest
    rows = rng.normal(size=(70, 4))
    np.testing.assert_array_equal(again.run(rows)["y"], op.reference(rows))
