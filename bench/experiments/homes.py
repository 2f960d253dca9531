"""Models at home: what nodes load again under a memory budget, against `@serve.multiplexed`.

    python -m bench homes

Ray is in the environment of scripts/test-integrations; without that, nothing is measured.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

from bench import environments
from bench.goal import Goal
from bench.machine import ROOT

QUESTION = "Requests sent where their models are in memory, and models loaded again"


def measured() -> Iterator[Goal]:
    """Every goal, with what was measured."""
    python = environments.python("integrations")
    if python is None:
        print("Ray was not measured: run scripts/test-integrations once")
        return
    command = [str(python), "-m", "bench.experiments.homes_on_ray"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RuntimeError(f"Ray was not measured: {done.stderr.strip()[-500:]}")
    found = json.loads(lines[-1])
    for name, (loads, rate, p99) in found["ways"].items():
        print(f"# {name}: {loads:,.1f} loads in 1,000 requests,", end=" ")
        print(f"{rate:,.0f} requests a second, p99 {p99 * 1e3:,.1f} ms")
    print(f"# {found['models']} models on {found['nodes']} nodes; each has room for", end=" ")
    print(f"{100 * found['room']:.0f} % of them; {found['requests']:,} requests, Zipf")
    homes, turn, peer = (found["ways"][name] for name in ("homes", "in turn", "@serve.multiplexed"))
    yield Goal("loads, against asking replicas in turn, x", homes[0] / turn[0], 0.1, at_most=True)
    yield Goal("loads, against @serve.multiplexed, x", homes[0] / peer[0], 1.0, at_most=True)
    yield Goal("requests a second, against @serve.multiplexed, x", homes[1] / peer[1], 5.0)
