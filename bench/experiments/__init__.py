"""The questions, one file each.

Those of `PHASES` share the processes of a workload, one after the other: `measure(session, crew)`.
Those of `ALONE` start their own: `run(session)`.
"""

from __future__ import annotations

import importlib
from typing import Any

PHASES = ("memory", "load_time", "latency", "batch_throughput", "cost")
ALONE = ("end_to_end", "heavy_load", "scale", "ablations", "reservation")
EVERY = (*PHASES, *ALONE)


def find(name: str) -> Any:
    """The module of an experiment."""
    if name not in EVERY:
        raise LookupError(f"no experiment is called {name!r}; there are {', '.join(EVERY)}")
    return importlib.import_module(f"bench.experiments.{name}")
