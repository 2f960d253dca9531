"""How computing divides among segments and stages."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import flour
from runtime import Runtime
from runtime.http.watch.metrics_watch import families

X = np.random.default_rng(0).normal(size=(4000, 12))


def test_computing_is_divided_among_segments_and_stages() -> None:
    forest = RandomForestClassifier(50, max_leaf_nodes=200, random_state=0)
    model = make_pipeline(StandardScaler(), PCA(4), forest).fit(X[:1000], X[:1000, 0] > 0)
    rows = X.copy()
    rows[:, 0] = np.where(np.arange(len(X)) < 3000, 0.0, 1.0)
    with Runtime() as runtime:
        runtime.register("m", flour.from_sklearn(model), background=False)
        with runtime.watch("m", segments=("0",), costs=True, reference=X[:100]) as seen:
            runtime.predict("m", rows, engine="inline")
            seen.fold()
            counted = {cell.segment: cell.seconds for cell in seen.cells()}
            assert seen.costs is not None
            shares = seen.costs.shares
            told = {
                each.name: each.samples for each in families(runtime.endpoints.versions().values())
            }
    assert counted["0",] == pytest.approx(3 * counted["1",])
    assert 0 < sum(counted.values()) < 5
    assert sum(shares.values()) == pytest.approx(1)
    assert "trees" in max(shares, key=lambda name: shares[name])
    assert len(told["pretzel_stage_compute_share"]) == len(shares) > 1
    assert len(told["pretzel_segment_compute_seconds_total"]) == 2


def test_without_costs_nothing_is_timed() -> None:
    row = flour.record(age=float)
    with Runtime() as runtime:
        runtime.register("m", flour.outputs(score=row["age"]))
        with runtime.watch("m", segments=("age",)) as seen:
            runtime.predict("m", {"age": X[:100, 0]}, engine="inline")
            seen.fold()
            assert seen.costs is None
            assert not any(cell.seconds for cell in seen.cells())
            told = {
                each.name: each.samples for each in families(runtime.endpoints.versions().values())
            }
    assert not told["pretzel_segment_compute_seconds_total"]
