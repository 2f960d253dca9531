"""New processes with empty code caches."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import environments
from bench.machine import ROOT

#: Of several processes the fastest counts: waiting for a turn of the processor is not their cost.
TRIES = 3
_LONGEST = 600.0


class Failed(Exception):
    """What a process cannot do, in its own words."""


@contextmanager
def new_user() -> Iterator[dict[str, str]]:
    """The variables of a process on a machine where Pretzel has just been installed."""
    with tempfile.TemporaryDirectory() as empty:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "PRETZEL_CACHE": empty}
        # Byte code is written when a package is installed.
        variables |= {"PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"}
        yield variables | {"PYTHONPYCACHEPREFIX": str(ROOT / ".cache" / "pycache")}


def asked(python: Path, module: str, *arguments: str, env: Mapping[str, str]) -> Any:
    """What this module says, run by this interpreter: the last line of its output, as JSON."""
    done = subprocess.run(
        [str(python), "-W", "ignore", "-m", module, *arguments],
        env=dict(env),
        capture_output=True,
        text=True,
        check=False,
        timeout=_LONGEST,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise Failed((lines or [f"{module} ended with {done.returncode}"])[-1][:200])
    return json.loads(done.stdout.splitlines()[-1])


def best(name: str, folder: Path, *options: str) -> dict[str, float]:
    """What the fastest of several processes of a contestant says; raises Failed if it cannot.

    `process` is the time from the start of the process, with all that it imports.
    """
    environment = "treelite" if name == "tl2cgen" else "main"
    python = environments.python(environment)
    if python is None:
        raise Failed(environments.reason(environment))
    runs: list[dict[str, float]] = []
    for _ in range(TRIES):
        with new_user() as env:
            module = f"bench.cold.contestants.{name}"
            begun = time.time()
            said = asked(python, module, str(folder), *options, env=env)
            runs.append(said | {"process": said["at"] - begun})
    return min(runs, key=lambda run: run["first"])
