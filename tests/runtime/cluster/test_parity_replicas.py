"""Parity over a cluster: a replica that stands still does not hold up its share of the answers."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from runtime.cluster.parity import Coded, Hedged, ParityCode, Replicas
from runtime.cluster.parity.frontend import Answer
from runtime.cluster.serving import ClusterClient, Scale
from runtime.errors import ClusterError
from tests.house import until
from tests.runtime.cluster.clusters import cluster
from tests.runtime.repository.folders import age, save_plan

ROWS = np.random.default_rng(0).normal(size=(40, 1, 4))
OFFSET = 3.0


def test_a_replica_that_stands_still_is_made_up_for(tmp_path: Path) -> None:
    save_plan(tmp_path / "models" / "a.pretzel", OFFSET)
    age(tmp_path / "models" / "a.pretzel")
    with (
        cluster(tmp_path, tmp_path / "models", scale=Scale(3, 3)) as controller,
        ClusterClient(controller.front.url) as client,
        Replicas(client, "a", "moved", timeout=60.0) as replicas,
    ):
        controller.wait_ready()
        until(lambda: len(replicas.endpoints()) == 3)  # the last one may hear of itself later
        one, two, spare = replicas.endpoints()
        stopped = client.members().ready()[0].process
        os.kill(stopped, signal.SIGSTOP)
        try:
            coded = asyncio.run(
                _asked(Coded([one, two], [[spare]], ParityCode(2), constant=OFFSET))
            )
            hedged = asyncio.run(_asked(Hedged([one, two, spare], after=0.01)))
        finally:
            os.kill(stopped, signal.SIGCONT)
        for number, rows in enumerate(ROWS):
            np.testing.assert_allclose(coded[number].values, rows + OFFSET, rtol=0, atol=1e-12)
            np.testing.assert_array_equal(hedged[number].values, rows + OFFSET)
        assert sum(each.reconstructed for each in coded) > 0
        save_plan(tmp_path / "models" / "a.pretzel", OFFSET + 4)  # under its number
        age(tmp_path / "models" / "a.pretzel")
        controller.sync()
        again = asyncio.run(_asked(Coded([one, _lost], [[spare]], ParityCode(2), constant=OFFSET)))
        assert sum(each.reconstructed for each in again) == len(ROWS) // 2
        for number, rows in enumerate(ROWS):
            np.testing.assert_allclose(again[number].values, rows + OFFSET + 4, atol=1e-12)
        with (
            Replicas(client, "a", "moves") as wrong,
            pytest.raises(ClusterError, match="no output 'moves'"),
        ):
            asyncio.run(_one(wrong))


async def _asked(front: Coded | Hedged) -> list[Answer]:
    """Groups of two, as they come; those to the replica that stands still never come back."""
    found: list[Answer] = []
    for start in range(0, len(ROWS), 2):
        group = asyncio.gather(*map(front, ROWS[start : start + 2]))
        found += await asyncio.wait_for(group, 30.0)
    return found


async def _lost(_rows: object) -> Answer:
    raise ConnectionError("the replica has gone")


async def _one(replicas: Replicas) -> object:
    return await replicas.endpoints()[1](ROWS[0])
