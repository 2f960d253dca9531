"""Candidates as tasks of a real Ray."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pretzel.training import RayTasks, TrainingCache, train
from tests.runtime.training.recipes import ran, recipe

pytestmark = pytest.mark.integrations


@pytest.fixture(scope="module")
def tasks(cluster: Any) -> Iterator[RayTasks]:
    assert cluster.is_initialized()
    with RayTasks() as made:
        yield made


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
