"""A server that is killed in the middle of a rollout goes on with it, at the step it was at."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runtime import Runtime
from runtime.repository.repository import Repository
from runtime.routing.written import from_data, from_toml
from tests.house import ROOT
from tests.runtime.repository.folders import WIDTH, save_plan

STEPS = [5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0]
SERVING = f"""
import sys
import time
from pathlib import Path
from runtime import Runtime
from runtime.repository.repository import Repository

with Runtime() as runtime, Repository(Path(sys.argv[1]), runtime) as repository:
    repository.load_all()
    if "m" not in runtime.experiments.rollouts:
        runtime.route("m", "m@1")
        runtime.rollout("m", "m@2", steps={STEPS}, dwell=0.03, header="user", least=5)
    print("ready", flush=True)
    user = 0
    while runtime.rollout("m").state != "done":
        user += 1
        runtime.predict("m", [0.0] * {WIDTH}, headers={{"user": str(user)}})
    print("done", flush=True)
"""


def begun(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SERVING, str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_killed_server_goes_on(tmp_path: Path) -> None:
    for version in (1, 2):
        save_plan(tmp_path / "m" / str(version) / "model.pretzel", float(version))
    rng, steps = random.Random(0), [0]
    for turn in range(12):
        with begun(tmp_path) as process:
            time.sleep(rng.random() * 0.02 * (turn + 1))  # a busy machine takes longer for a step
            process.send_signal(signal.SIGKILL)
        data, route = found(tmp_path)
        if data["state"] in {"running", "promoting"}:
            assert data["step"] >= steps[-1]  # never back
            steps.append(data["step"])
            weights = [0.0, *STEPS][data["step"] : data["step"] + 2]
            # The route is that of the step, or the one before, as the step is written down first.
            assert route.champion == "m@2" or route.split.get("m@2", 0.0) in weights
    with begun(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
    data, route = found(tmp_path)
    assert (data["state"], route.champion, dict(route.split)) == ("done", "m@2", {})
    assert len(set(steps)) > 1


def found(folder: Path) -> tuple[Any, Any]:
    """The rollout and the route, as the files have them."""
    data = json.loads((folder / "m" / "endpoint.rollout").read_text())
    from_data(data["base"], "")
    return data, from_toml((folder / "m" / "endpoint.toml").read_text(), "", 0.0)[-1].route


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"state": "running"}', "\x00"])
def test_a_damaged_file_is_told_and_changes_nothing(tmp_path: Path, text: str) -> None:
    for version in (1, 2):
        save_plan(tmp_path / "m" / str(version) / "model.pretzel", float(version))
    (tmp_path / "m" / "endpoint.toml").write_text('champion = "m@1"')
    (tmp_path / "m" / "endpoint.rollout").write_text(text)
    with Runtime() as runtime, Repository(tmp_path, runtime, quiet_seconds=0) as repository:
        events = repository.load_all()
        (refused,) = (each for each in events if each.kind == "refused")
        assert "endpoint.rollout" in refused.reason
        assert runtime.endpoints.find("m").owner == "m@1"
        assert repository.poll() == ()
        made = runtime.rollout("m", "m@2", header="user")
        assert made.state == "running"
