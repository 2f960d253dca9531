"""A contestant's process stands still between its turns, and ends with the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.crew import Member

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

_PARENT = """\
import sys, time
from pathlib import Path
from bench.crew import Member
member = Member("sklearn", log=Path(sys.argv[1]))
print(member._process.pid, flush=True)
time.sleep(60)
"""


def state(process: int) -> str:
    """T when it stands still; nothing when there is none."""
    try:
        return (
            Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
        )
    except (FileNotFoundError, ProcessLookupError):
        return ""


def until(process: int, wanted: set[str]) -> None:
    """Wait until it is in one of these states."""
    end = time.monotonic() + 60
    while state(process) not in wanted:
        assert time.monotonic() < end, state(process)
        time.sleep(0.01)


def test_it_stands_still_until_it_is_asked(tmp_path: Path) -> None:
    with Member("sklearn", log=tmp_path / "log") as member:
        number = member._process.pid
        until(number, {"T"})
        assert member.ask("memory")["rss"] > 0
        until(number, {"T"})
    assert state(number) == ""


def test_it_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    run = [sys.executable, "-c", _PARENT, str(tmp_path / "log")]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        until(number, {"T"})
        os.kill(parent.pid, signal.SIGKILL)
        until(number, {"", "Z"})
