"""Two hours of a cluster on three nodes of Ray: upgrades, kills and load; memory stays flat.

SOAK_SECONDS=180 scripts/test-integrations -m "integrations and soak"    is a trial of it
"""

from __future__ import annotations

import logging
import os
import signal
import statistics
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from bench.ray_nodes import NODES, RayNodes
from tests.house import until

pytestmark = [pytest.mark.integrations, pytest.mark.soak]

log = logging.getLogger("pretzel.soak")
SECONDS = float(os.environ.get("SOAK_SECONDS", "7200"))
MODELS = 24
#: Seconds of load that are judged together, and how seldom each of the evils comes.
TURN, KILL, ROLL, NODE = 6.0, 3, 5, 8
#: Seconds between a client's questions: the machine has other work in these hours.
PAUSE = float(os.environ.get("SOAK_PAUSE", "0.02"))
LONGEST, BACK_SECONDS, SLACK = 60.0, 120.0, 48 << 20


def resident_bytes(process: int) -> int:
    """Memory of a process that is its own; 0 if it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text("utf-8")
    except FileNotFoundError:
        return 0
    return int(status.split("RssAnon:")[1].split()[0]) << 10


def test_hours_of_upgrades_and_kills_on_three_nodes(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from bench.experiments.cluster_failures import REPLICAS, Trial
    from bench.experiments.cluster_load import Load

    (tmp_path / "models").mkdir()
    #: Of the controller first, then of all replicas.
    sizes: list[tuple[float, list[int]]] = []
    answered = kills = rolls = lost_nodes = 0
    with closing(RayNodes(None, 4)) as nodes:
        trial = Trial(nodes, tmp_path / "models", MODELS, tmp_path)
        with trial.deployed():
            until(lambda: len(trial.ready()) == REPLICAS, seconds=BACK_SECONDS)
            assert len(set(trial.ready().values())) == 3
            began, turn, version = time.monotonic(), 0, 1
            while (past := (time.monotonic() - began) / SECONDS) < 1.0:
                turn, lost = turn + 1, set[int]()
                with Load(trial.clients, MODELS, pause=PAUSE).on() as load:
                    load.acknowledged(trial.models, version)
                    end = time.monotonic() + TURN
                    until(lambda: load.answered > 100)
                    if turn % NODE == 0:
                        chosen = next(
                            each
                            for each in nodes.cluster.worker_nodes
                            if each.node_ip_address == NODES[1]
                        )
                        lost = {
                            pid for pid, node in trial.ready().items() if node == chosen.node_id
                        }
                        nodes.kill(chosen)
                        nodes.add(NODES[1])
                        lost_nodes += 1
                    elif turn % KILL == 0:
                        lost = {next(iter(trial.ready()))}
                        os.kill(next(iter(lost)), signal.SIGKILL)
                        kills += 1
                    elif turn % ROLL == 0:
                        assert trial.roll() == REPLICAS
                        rolls += 1
                    trial.upgrade(load, trial.models)
                    version += 1
                    until(partial(trial.back, lost), seconds=BACK_SECONDS)
                    while time.monotonic() < end:
                        time.sleep(0.05)
                assert (load.failed, load.withdrawn(), load.foreign) == ([], 0, 0)
                assert load.slowest() < LONGEST
                answered += load.answered
                asked = trial.status()["controller"], *trial.ready()
                sizes.append((past, [*map(resident_bytes, asked)]))
    assert answered > SECONDS
    assert kills > 0
    second, last = ([sum(each) for past, each in sizes if n <= 4.0 * past < n + 1] for n in (1, 3))
    told = [[each >> 20 for each in (sum(size), size[0])] for _, size in sizes]
    log.info("%d answers, %d versions, %d kills", answered, version, kills)
    log.info("MB in all and of the controller %s", told)
    log.info("all replaced %d times, %d nodes lost", rolls, lost_nodes)
    assert statistics.median(last) < statistics.median(second) + SLACK, told
