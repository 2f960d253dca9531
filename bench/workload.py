"""Trained pipelines on disk: made once for a seed, a scale and a version, then read by all.

A workload is a directory with input rows and, for each pipeline, the fitted scikit-learn object and
its answers. Contestants put their converted files beside that.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bench.inputs import Inputs
from bench.machine import ROOT

NAMES = ("sa", "ac", "tab", "lin", "gbt")
#: Rows whose answers are kept, to check contestants.
CHECKED = 32


@dataclass(frozen=True)
class Spec:
    """A workload: its name, number of pipelines, scale and random seed."""

    name: str
    count: int
    scale: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Made:
    """The result of a workload's module: the rows, and an iterator of fitted pipelines."""

    inputs: Inputs
    pipelines: Iterator[Any]
    facts: dict[str, Any]


@dataclass(frozen=True)
class Pipeline:
    """One pipeline's files."""

    folder: Path
    number: int

    def file(self, suffix: str) -> Path:
        """The path of a file made from this pipeline."""
        return self.folder / "pipelines" / f"{self.number:04d}.{suffix}"

    def estimator(self) -> Any:
        """The fitted scikit-learn object, loaded anew at each call, as in another process."""
        with self.file("pickle").open("rb") as file:
            return pickle.load(file)

    def expected(self) -> Any:
        """scikit-learn's answers for the first rows."""
        return np.load(self.file("expected.npy"))


@dataclass(frozen=True)
class Saved:
    """A workload on disk."""

    folder: Path
    count: int

    @property
    def name(self) -> str:
        """The name of the workload."""
        return str(self.facts["name"])

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Facts about it: the spec, the kind of its answers."""
        text = (self.folder / "workload.json").read_text(encoding="utf-8")
        return dict(json.loads(text))

    @cached_property
    def inputs(self) -> Inputs:
        """The rows to ask about."""
        return Inputs.read(self.folder)

    def pipelines(self) -> list[Pipeline]:
        """Every pipeline, in the order of their numbers."""
        return [Pipeline(self.folder, number) for number in range(self.count)]


def scores(estimator: Any, rows: Any) -> Any:
    """The numbers that are compared: the probability of the second class, or the value."""
    if hasattr(estimator, "predict_proba"):
        return estimator.predict_proba(rows)[:, 1]
    return estimator.predict(rows)


def cache_folder() -> Path:
    """The folder of trained pipelines."""
    return Path(os.environ.get("PRETZEL_BENCH_CACHE") or ROOT / ".cache" / "bench")


def saved(spec: Spec, step: Callable[[], None] = lambda: None) -> Saved:
    """The workload's directory, completed if needed; `step` is called for each pipeline."""
    module = importlib.import_module(f"bench.workloads.{spec.name}")
    folder = cache_folder() / spec.name / _key(spec, Path(str(module.__file__)))
    done = folder / "count"
    if done.exists() and int(done.read_text()) >= spec.count:
        return Saved(folder, spec.count)
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    trained: Made = module.make(spec)
    trained.inputs.write(folder)
    facts = {**asdict(spec), **trained.facts}
    (folder / "workload.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    _fill(folder, trained, step)
    done.write_text(str(spec.count))
    return Saved(folder, spec.count)


def _key(spec: Spec, source: Path) -> str:
    """A key of everything that the files depend on: module text, spec, training library.

    Without the number of pipelines: the first ones are the same.
    """
    from importlib.metadata import version

    text = f"{source.read_text()} {version('scikit-learn')} {version('numpy')}"
    digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    return f"seed{spec.seed}-scale{spec.scale:g}-{digest}"


def _fill(folder: Path, trained: Made, step: Callable[[], None]) -> None:
    for number, estimator in enumerate(trained.pipelines):
        pipeline = Pipeline(folder, number)
        if not pipeline.file("expected.npy").exists():
            answers = scores(estimator, trained.inputs.frame(0, CHECKED))
            with pipeline.file("pickle").open("wb") as file:
                pickle.dump(estimator, file, protocol=5)
            if hasattr(estimator, "booster_"):  # LightGBM's own file, which many tools read
                estimator.booster_.save_model(str(pipeline.file("lightgbm.txt")))
            np.save(pipeline.file("expected.npy"), np.asarray(answers, np.float64))
        step()
