"""Trainings in processes of their own, which may be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from pretzel.training import WorkerProcesses, train
from tests.house import ROOT, until
from tests.runtime.training.recipes import cache, ran, recipe

#: One training more, which says when it is under way and waits for a file.
SLOW = (
    "@gate",
    """@candidate
def slow(rows):
    import time
    note(f"slow:{os.getpid()}")
    while not LOG.with_name("go").exists():
        time.sleep(0.01)
    return classifier(9.0)


@gate""",
)
IMPORT = ("import numpy", "import os\n\nimport numpy")
RUN = """
import signal, sys
from pathlib import Path
from pretzel.training import Publisher, Recipe, TrainingCache, WorkerProcesses, train

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores it
    recipe, folder = sys.argv[1:]
    with TrainingCache(folder) as cache, WorkerProcesses(3) as jobs:
        publisher = Publisher("m", Path(recipe).parent / "models")
        print(train(Recipe.read(recipe), cache, publisher, jobs).served, flush=True)
"""


@contextmanager
def begun(folder: Path) -> Iterator[subprocess.Popen[str]]:
    script = folder / "run.py"
    script.write_text(RUN)
    command = [sys.executable, str(script), str(folder / "tiny_recipe.py"), str(folder / "cache")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def pid_of(folder: Path, name: str = "slow") -> int:
    return next((int(each.partition(":")[2]) for each in ran(folder) if each.startswith(name)), 0)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_training_continues(tmp_path: Path) -> None:
    recipe(tmp_path, SLOW, IMPORT)
    with begun(tmp_path) as process:
        until(lambda: ran(tmp_path).count("gate") >= 2 and pid_of(tmp_path))
        steps = tmp_path / "cache" / "steps"
        until(lambda: len([*steps.glob("*")]) >= 8)  # with both plans
        process.send_signal(signal.SIGKILL)
    until(lambda: not is_alive(pid_of(tmp_path)), "the job of a killed training goes on")
    (tmp_path / "log").write_text("")
    (tmp_path / "go").touch()
    with begun(tmp_path) as process:
        output, _ = process.communicate(timeout=120)
    assert output == "('slow', 'strong')\n"
    again = [each.partition(":")[0] for each in ran(tmp_path)]
    assert again.count("slow") == 1
    assert {*again} == {"slow", "gate"}
    assert again.count("gate") in {2, 3}  # that of the mean may have been killed


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
def test_an_interrupted_training_ends_its_jobs(tmp_path: Path) -> None:
    recipe(tmp_path, SLOW, IMPORT)
    with begun(tmp_path) as process:
        until(lambda: pid_of(tmp_path))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    until(lambda: not is_alive(pid_of(tmp_path)), "the job of an interrupted training goes on")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_process_that_is_killed_fails_its_own_candidate(tmp_path: Path) -> None:
    kill = ('note("weak")', "os.kill(os.getpid(), 9)")
    with cache(tmp_path) as opened, WorkerProcesses(2) as jobs:
        outcome = train(recipe(tmp_path, kill, IMPORT), opened, None, jobs)
    assert outcome.served == ("strong",)
    assert "the process has ended without a result" in outcome.failed["weak"]
    assert "-9" in outcome.failed["weak"]


def test_two_trainings_at_once(tmp_path: Path) -> None:
    """Each result is computed by one of them, and no version is equal to the one before."""
    recipe(tmp_path, SLOW, IMPORT)
    with begun(tmp_path) as one, begun(tmp_path) as other:
        until(lambda: pid_of(tmp_path))
        until(lambda: ran(tmp_path).count("gate") >= 2)
        (tmp_path / "go").touch()
        for process in (one, other):
            output, _ = process.communicate(timeout=120)
            assert output == "('slow', 'strong')\n"
    names = sorted(each.partition(":")[0] for each in ran(tmp_path))
    assert names == ["gate"] * 5 + ["rows", "slow", "strong", "unread", "weak"], "two of means"
    versions = [each.read_bytes() for each in sorted((tmp_path / "models" / "m").glob("*/*"))]
    assert all(one != other for one, other in pairwise(versions))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_killed_process_keeps_no_lock(tmp_path: Path) -> None:
    recipe(tmp_path, SLOW, IMPORT)
    with begun(tmp_path) as one, begun(tmp_path) as other:
        until(lambda: pid_of(tmp_path))
        first = pid_of(tmp_path)
        os.kill(first, signal.SIGKILL)
        until(lambda: sum(each.startswith("slow") for each in ran(tmp_path)) == 2)
        (tmp_path / "go").touch()
        outputs = {process.communicate(timeout=120)[0] for process in (one, other)}
    assert "('slow', 'strong')\n" in outputs
