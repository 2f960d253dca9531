"""Directories of staged plans: what is used stays, what nobody uses goes, whoever was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runtime import Runtime
from runtime.repository import Repository, staging
from runtime.repository.staging import SHARED_SECONDS, Staging, remove_deserted
from runtime.repository.staging_locks import Claim, claimed, claims, deserted
from tests.house import ROOT
from tests.runtime.repository.folders import WIDTH, age, save_plan

#: Stages a plan, says so, and waits to be killed.
HOLDER = """
import sys, time
from runtime.repository import Repository
class Nobody:
    def register(self, *_, **__): pass
    def switch(self, *_): pass
folder, place = sys.argv[1], sys.argv[2] or None
repository = Repository(folder, Nobody(), staging=place)
repository.load_all()
print(repository.staging, flush=True)
time.sleep(600)
"""


def holder(folder: Path, place: str, scratch: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), place],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)


def old(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_what_a_killed_process_left_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(staging, "gettempdir", lambda: str(scratch))
    save_plan(tmp_path / "models" / "a.pretzel", 1.0)
    process, left = holder(tmp_path / "models", "", scratch)
    try:
        assert left.parent == scratch
        assert remove_deserted(scratch) == 0  # it lives
        assert list(left.glob("*.pretzel"))
    finally:
        killed(process)
    foreign = scratch / "pretzel-models-without-a-claim"
    foreign.mkdir()
    (scratch / "pretzel-models-link").symlink_to(tmp_path / "models")
    Staging().close()
    assert not left.exists()
    assert foreign.exists()
    assert (tmp_path / "models" / "a.pretzel").exists()


def test_a_shared_directory_loses_what_nobody_uses(tmp_path: Path) -> None:
    place, models = tmp_path / "staging", tmp_path / "models"
    save_plan(models / "a.pretzel", 1.0)
    process, _ = holder(models, str(place), tmp_path)
    try:
        (theirs,) = place.glob("*.pretzel")
        unused, copy = place / f"{'0' * 40}.pretzel", place / ".copy-abc"
        young, foreign = place / f"{'1' * 40}.pretzel", place / "notes.txt"
        for path in (unused, copy, young, foreign):
            path.write_bytes(b"")
        for path in (theirs, unused, copy, foreign):
            old(path, SHARED_SECONDS + 60)
        save_plan(tmp_path / "others" / "b.pretzel", 2.0)
        with (
            Runtime() as runtime,
            Repository(tmp_path / "others", runtime, staging=place) as repository,
        ):
            repository.load_all()
            (ours,) = set(place.glob("*.pretzel")) - {theirs, unused, young}
            repository.poll()
            assert (theirs.exists(), ours.exists(), young.exists()) == (True, True, True)
            assert foreign.exists()
            assert not unused.exists()
            assert not copy.exists()
    finally:
        killed(process)
    shared = Staging(place)
    shared.keep([])
    assert not theirs.exists()  # the process is gone, and its file is old
    assert ours.exists()
    shared.close()
    assert claims(place) == []


def test_a_version_that_went_is_claimed_no_more(tmp_path: Path) -> None:
    place, models = tmp_path / "staging", tmp_path / "models"
    save_plan(models / "a.pretzel", 1.0)
    with (
        Runtime() as runtime,
        Repository(models, runtime, staging=place, quiet_seconds=0.0) as repository,
    ):
        repository.load_all()
        (first,) = place.glob("*.pretzel")
        save_plan(models / "a.pretzel", 2.0)
        age(models / "a.pretzel")
        repository.poll()
        assert runtime.predict("a", [0.0] * WIDTH)["top"] == 2.0
        assert claimed(place) == {each.name for each in place.glob("*.pretzel")} - {first.name}
    assert claims(place) == []


def test_claims(tmp_path: Path) -> None:
    with deserted(tmp_path) as free:
        assert not free  # nobody has ever claimed it
    one, two = Claim(tmp_path, ["a", "b"]), Claim(tmp_path)
    two.add("c")
    two.add("c")
    assert claimed(tmp_path) == {"a", "b", "c"}
    other = one.only(["b"])
    assert other is not one
    assert other.only(["b"]) is other
    assert claimed(tmp_path) == {"b", "c"}
    with deserted(tmp_path) as free:
        assert not free
    other.close()
    two.close()
    two.close()
    (tmp_path / ".use-dead").write_text("d\n", encoding="utf-8")
    with deserted(tmp_path) as free:
        assert free
        with deserted(tmp_path) as again:
            assert not again  # one at a time
    assert claimed(tmp_path) == set()
    assert claims(tmp_path) == []
