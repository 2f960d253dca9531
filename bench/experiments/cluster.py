"""Replicas on Ray, asked directly, against as many of our own workers; and what failures cost.

    python -m bench cluster

Ray is in the environment of scripts/test-integrations; without that, nothing is measured.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import environments
from bench.goal import Goal
from bench.machine import ROOT

#: How soon all replicas are back, in seconds; Ray takes some ten to notice that a node is gone.
BACK = {"replica": 15.0, "node": 45.0, "head": 45.0}
JUDGED = {
    "failed": "failed requests",
    "withdrawn": "answers of a withdrawn version",
    "foreign": "answers to another request, or twice",
}
QUESTION = "Replicas on Ray against workers without it, kills and upgrades under load"


MODELS, REQUESTS = 1000, 100_000
#: The longest that a part of the measurement may take.
_SECONDS = 600


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    python = environments.python("integrations")
    if python is None:
        print("Ray was not measured: run scripts/test-integrations once")
        return
    yield from _rates(_told(python, "cluster_on_ray"))
    yield from _failures(_told(python, "cluster_failures", str(MODELS), str(REQUESTS)))


def _told(python: Path, module: str, *arguments: str) -> Any:
    """What a module prints last, in the environment of Ray."""
    command = [str(python), "-m", f"bench.experiments.{module}", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=_SECONDS
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"Ray was not measured: {done.stderr.strip()[-500:]}")
    return json.loads(lines[-1])


def _rates(found: Any) -> Iterator[Goal]:
    for name, rate in found["rates"].items():
        print(f"# {name}: {rate:,.0f} requests a second, median of rounds ({found['by']})")
    direct, workers = found["rates"]["replicas"], found["rates"]["workers"]
    yield Goal("requests a second, against workers without Ray, x", direct / workers, 0.9)
    yield Goal("from no replica to the first answer, s", found["woken"], 1.0, at_most=True)


def _failures(found: Any) -> Iterator[Goal]:
    upgrades, kills = found["upgrades"], found["kills"]
    seconds = ", ".join(f"{each:.0f}" for each in upgrades["seconds"])
    print(
        f"# {found['models']:,} models, 6 replicas on {found['nodes']} nodes, ready after "
        f"{found['up']:.0f} s; all models upgraded in {seconds} s under load, "
        f"{upgrades['rolled']} processes replaced; {found['repeated']} requests sent again"
    )
    yield Goal("requests during upgrades of every model", upgrades["answered"], REQUESTS)
    if "head" not in kills:
        print("# the head was not killed: redis-server is not installed")
    for name, limit in BACK.items():
        if name in kills:
            each = kills[name]
            print(
                f"# kill -9, {name}: {each['lost']} replicas lost, {each['answered']:,} requests, "
                f"the slowest {each['slowest']:.2f} s; {each['followed']:.1f} s until a tenth of "
                "the models was replaced"
            )
            said = f"kill -9, {name}: all six replicas answer again, s"
            yield Goal(said, each["back"], limit, at_most=True)
    for name, each in {"upgrades": upgrades, **kills}.items():
        for said in each["said"]:
            print(f"# {name}, failed: {said}")
        for what in ("failed", "withdrawn", "foreign"):
            yield Goal(f"{name}: {JUDGED[what]}", each[what], 0, at_most=True)
