"""Trained pipelines on disk: made once for a seed, a scale and a version, then read by everybody.

A workload is a directory with the rows to ask about and, for each pipeline, the fitted
scikit-learn object and its own answers. Contestants put what they make of it beside that.
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
#: How many rows' answers are kept, to check contestants by.
CHECKED = 32


@dataclass(frozen=True)
class Spec:
    """Which workload, how many pipelines of it, how large, and from which random numbers."""

    name: str
    count: int
    scale: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Made:
    """What a workload's module makes: the rows, and the fitted pipelines one after the other."""

    inputs: Inputs
    pipelines: Iterator[Any]
    facts: dict[str, Any]


@dataclass(frozen=True)
class Pipeline:
    """One pipeline's files."""

    folder: Path
    number: int

    def file(self, suffix: str) -> Path:
        """Where something made from this pipeline is kept."""
        return self.folder / "pipelines" / f"{self.number:04d}.{suffix}"

    def estimator(self) -> Any:
        """The fitted scikit-learn object, a new one at each call, as another process has it."""
        with self.file("pickle").open("rb") as file:
            return pickle.load(file)

    def expected(self) -> Any:
        """What scikit-learn answered for the first rows."""
        return np.load(self.file("expected.npy"))


@dataclass(frozen=True)
class Saved:
    """A workload on disk."""

    folder: Path
    count: int

    @property
    def name(self) -> str:
        """Which workload it is."""
        return str(self.facts["name"])

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What is known of it beyond its files: the spec, what kind of answers it has."""
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
    """What is compared: the probability of the second class, or the value."""
    if hasattr(estimator, "predict_proba"):
        return estimator.predict_proba(rows)[:, 1]
    return estimator.predict(rows)


def cache_folder() -> Path:
    """Where trained pipelines are kept."""
    return Path(os.environ.get("PRETZEL_BENCH_CACHE") or ROOT / ".cache" / "bench")


def saved(spec: Spec, step: Callable[[], None] = lambda: None) -> Saved:
    """The workload's directory, filled as far as it was not yet; `step` is called for each."""
    module = importlib.import_module(f"bench.workloads.{spec.name}")
    folder = cache_folder() / spec.name / _key(spec, Path(str(module.__file__)))
    done = folder / "count"
    if done.exists() and int(done.read_text()) >= spec.count:
        return Saved(folder, spec.count)
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    made: Made = module.make(spec)
    made.inputs.write(folder)
    facts = {**asdict(spec), **made.facts}
    (folder / "workload.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    _fill(folder, made, step)
    done.write_text(str(spec.count))
    return Saved(folder, spec.count)


def _key(spec: Spec, source: Path) -> str:
    """Names what the files depend on: the module's text, the spec, the training library.

    The number of pipelines is no part of it: fewer are a part of more.
    """
    from importlib.metadata import version

    text = f"{source.read_text()} {version('scikit-learn')} {version('numpy')}"
    digest = hashlib.blake2b(text.encode(), digest_size=6).hexdigest()
    return f"seed{spec.seed}-scale{spec.scale:g}-{digest}"


def _fill(folder: Path, made: Made, step: Callable[[], None]) -> None:
    for number, estimator in enumerate(made.pipelines):
        pipeline = Pipeline(folder, number)
        if not pipeline.file("expected.npy").exists():
            answers = scores(estimator, made.inputs.frame(0, CHECKED))
            with pipeline.file("pickle").open("wb") as file:
                pickle.dump(estimator, file, protocol=5)
            if hasattr(estimator, "booster_"):  # LightGBM's own file, which many tools read
                estimator.booster_.save_model(str(pipeline.file("lightgbm.txt")))
            np.save(pipeline.file("expected.npy"), np.asarray(answers, np.float64))
        step()
