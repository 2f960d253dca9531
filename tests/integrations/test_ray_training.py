"""Candidates as tasks of a real Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pretzel.training import RayTasks, TrainingCache, train
from tests.house import ROOT
from tests.runtime.training.recipes import ran, recipe

pytestmark = pytest.mark.integrations


@pytest.fixture(scope="module")
def tasks() -> Iterator[RayTasks]:
    ray = pytest.importorskip("ray")
    variables = {"PYTHONPATH": str(ROOT), "PRETZEL_CACHE": os.environ.get("PRETZEL_CACHE", "")}
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        logging_level="ERROR",
        object_store_memory=200 << 20,
        runtime_env={"env_vars": variables},
    )
    with RayTasks() as made:
        yield made
    ray.shutdown()


def test_steps_are_tasks(tasks: RayTasks, tmp_path: Path) -> None:
    with TrainingCache(tmp_path / "cache") as cache:
        outcome = train(recipe(tmp_path, ('note("unread")', "return {}[1]")), cache, None, tasks)
        assert outcome.served == ("strong", "weak")
        assert "KeyError: 1 (tiny_recipe.py:" in outcome.failed["unread"]
        assert sorted(ran(tmp_path)) == ["gate"] * 3 + ["rows", "strong", "weak"]
        assert train(recipe(tmp_path), cache, None, tasks).ran == ["unread"]


def test_a_task_whose_process_is_killed_fails_alone(tasks: RayTasks, tmp_path: Path) -> None:
    kill = (
        ('note("weak")', "os.kill(os.getpid(), 9)"),
        ("import numpy", "import os\n\nimport numpy"),
    )
    with TrainingCache(tmp_path / "cache") as cache:
        outcome = train(recipe(tmp_path, *kill), cache, None, tasks)
    assert outcome.served == ("strong",)
    assert "WorkerCrashedError" in outcome.failed["weak"]
