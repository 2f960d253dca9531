"""Results as JSON lines: first a line on the run and its machine, then one for each figure."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bench.machine import ROOT

FOLDER = ROOT / "bench" / "results"


@dataclass(frozen=True)
class Record:
    """One figure: what was measured of whom, where, with its spread over repeats."""

    experiment: str
    workload: str
    contestant: str
    metric: str
    value: float | None
    unit: str
    x: float | None = None
    """The x value on a curve: pipelines loaded, rows in a batch, load by capacity."""
    low: float | None = None
    high: float | None = None
    samples: int = 1
    note: str = ""
    histogram: dict[str, Any] = field(default_factory=dict)


def spread(values: Sequence[float]) -> dict[str, Any]:
    """A record's value, low, high and samples from repeats: the median and the extremes."""
    return {
        "value": statistics.median(values),
        "low": min(values),
        "high": max(values),
        "samples": len(values),
    }


class Run:
    """A run that is being written: every figure is in the file as soon as it is known."""

    def __init__(self, path: Path, about: dict[str, Any], *, resume: bool = False) -> None:
        """Begin a file, or go on with one: parts that are in it to their end are known."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.done = done(path) if resume else frozenset[str]()
        self._file = path.open("a" if resume else "w", encoding="utf-8")
        if resume:
            self._file.write("\n")  # what was cut off ends here
        self._write({"run": about})

    def add(self, record: Record) -> None:
        """Write a figure."""
        optional = {"note", "histogram", "low", "high", "x"}
        whole = asdict(record)
        self._write(
            {
                key: each
                for key, each in whole.items()
                if each not in (None, "", {}) or key not in optional
            }
        )

    def finish(self, part: str) -> None:
        """Mark a part as complete; resuming skips it."""
        self._write({"done": part})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        """No more figures."""
        self._file.close()


@dataclass(frozen=True)
class Read:
    """A run read from files: its description and its figures."""

    about: dict[str, Any]
    records: tuple[Record, ...]

    def of(self, experiment: str, metric: str | None = None) -> list[Record]:
        """The figures of an experiment, or of one of its metrics."""
        return [
            each
            for each in self.records
            if each.experiment == experiment and metric in {None, each.metric}
        ]


def read(paths: Path | Iterable[Path]) -> Read:
    """Read runs from files; of a figure that occurs twice, the later one counts."""
    about: dict[str, Any] = {}
    latest_by_key: dict[tuple[Any, ...], Record] = {}
    for path in [paths] if isinstance(paths, Path) else paths:
        for data in _lines(path):
            if "run" in data:
                about = {**about, **data["run"]}
            elif "done" not in data:
                item = Record(**data)
                latest_by_key[
                    item.experiment, item.workload, item.contestant, item.metric, item.x
                ] = item
    return Read(about, tuple(latest_by_key.values()))


def done(path: Path) -> frozenset[str]:
    """The complete parts of a file."""
    return frozenset(data["done"] for data in _lines(path) if "done" in data)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, without one that was cut off when its run ended."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield dict(json.loads(line))
        except ValueError:
            continue


def new_path(kind: str) -> Path:
    """The path for a new run."""
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return FOLDER / f"{stamp}-{kind}.jsonl"


def latest() -> Path | None:
    """The newest run there is; the committed reference run counts as the oldest."""
    every = sorted(FOLDER.glob("2*.jsonl")) or sorted(FOLDER.glob("*.jsonl"))
    return every[-1] if every else None
