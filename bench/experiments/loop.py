"""The loop: streams, training, minimal changes, shortcuts, then examples/retraining as a whole."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from bench.experiments import counterfactuals, shortcuts, streams, training
from bench.goal import Goal

QUESTION = "loop: streams, training that fans out, minimal changes and learned shortcuts"


def measured(folder: Path | None = None) -> Iterator[Goal]:
    """Every goal of each table."""
    for table in (counterfactuals, shortcuts, training, streams):
        yield from table.measured()
    yield from circles(folder)


def circles(folder: Path | None) -> Iterator[Goal]:
    """Drift under traffic, of which an endpoint recovers without a lost request."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "retraining"))
    circle = import_module("circle")
    for name in circle.TABLES:
        with tempfile.TemporaryDirectory() as place:
            ended = circle.run(Path(place), name, folder, str)
        print(f"{name}: {ended.before:.2f}, {ended.during:.2f}, {ended.after:.2f}; {ended.reason}")
        back = ended.after / ended.before
        yield Goal(f"{name}: accuracy that a retraining brings back", back, 0.95)
        lost = ended.failed + (ended.rollout != "done")
        yield Goal(f"{name}: requests and rollouts that failed", lost, 0, at_most=True)
