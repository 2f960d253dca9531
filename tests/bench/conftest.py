"""Workloads of the benchmarks in a directory of the test's own, small."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sklearn

from bench.workload import Saved, Spec, saved

Small = Callable[[str], Saved]
COUNTS = {"sa": 2, "ac": 3, "tab": 2, "lin": 2, "gbt": 1}


@pytest.fixture(autouse=True)
def _settings_of_scikit_learn() -> Iterator[None]:
    """Contestants have processes of their own to change settings in; tests share one."""
    with sklearn.config_context():
        yield


@pytest.fixture(scope="session")
def bench_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where trained pipelines of this test run are kept."""
    return tmp_path_factory.mktemp("bench")


@pytest.fixture
def small(bench_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    """A workload of a few pipelines by its name, trained once in a test run."""
    monkeypatch.setenv("PRETZEL_BENCH_CACHE", str(bench_cache))
    return lambda name: saved(Spec(name, COUNTS[name], 0.001 if name == "sa" else 0.05))
