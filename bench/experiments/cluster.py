"""Replicas on Ray, asked directly, against as many of our own workers; and what failures cost.

    python -m bench cluster

Ray is in the environment of scripts/test-integrations; without that, nothing is measured.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

from bench import environments
from bench.goal import Goal
from bench.machine import ROOT

QUESTION = "Replicas on Ray against workers without it, kills and upgrades under load"


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    python = environments.python("integrations")
    if python is None:
        print("Ray was not measured: run scripts/test-integrations once")
        return
    command = [str(python), "-m", "bench.experiments.cluster_on_ray"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"Ray was not measured: {done.stderr.strip()[-500:]}")
    found = json.loads(lines[-1])
    for name, rate in found["rates"].items():
        print(f"# {name}: {rate:,.0f} requests a second, median of rounds ({found['by']})")
    print(f"# upgrades: {found['upgrades']} of {found['models']} models,", end=" ")
    print(f"{found['upgraded']:,} requests meanwhile; processes replaced: {found['rolled']}")
    print(f"# repeated by the client: {found['repeated']}, of {found['asked']:,} in all")
    direct, workers = found["rates"]["replicas"], found["rates"]["workers"]
    yield Goal("requests a second, against workers without Ray, x", direct / workers, 0.9)
    yield Goal("failed requests while all models are upgraded", found["failed"], 0, at_most=True)
    yield Goal("answers of a withdrawn version", found["withdrawn"], 0, at_most=True)
    yield Goal("failed requests at a kill -9 of a replica", found["killed"], 0, at_most=True)
    yield Goal("a replica that was killed answers again, s", found["back"], 10, at_most=True)
    yield Goal("from no replica to the first answer, s", found["woken"], 1.0, at_most=True)
