"""The bench's trial of failures, with fewer models: kills and upgrades under load, judged."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integrations


def test_kills_and_upgrades_of_every_model_under_load() -> None:
    pytest.importorskip("ray")
    from bench.experiments import cluster_failures

    found = cluster_failures.measured(models=120, requests=4000)
    assert found["nodes"] == 3
    upgrades = found["upgrades"]
    assert upgrades["answered"] >= 4000
    assert upgrades["rolled"] == cluster_failures.REPLICAS
    assert found["kills"]["replica"]["lost"] == 1
    assert all(each["lost"] >= 1 for each in found["kills"].values())
    for each in (upgrades, *found["kills"].values()):
        assert each["answered"] > 400
        assert (each["failed"], each["withdrawn"], each["foreign"]) == (0, 0, 0)
