"""Processes that die at any point, write at the same time, or collect under each other's feet."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from objectstore import FileStore
from tests.objectstore import worker

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).parents[2]


def _start(role: str, directory: Path, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, worker.__file__, role, str(directory), str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )


def _run_together(directory: Path, *roles: tuple[str, int]) -> list[str]:
    """Run workers at the same time; what each of them wrote."""
    processes = [_start(role, directory, number) for role, number in roles]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert [process.returncode for process in processes] == [0] * len(processes)
    return outputs


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    with _start("nursery", tmp_path, 0) as process:
        yield process
        assert process.stdin
        process.stdin.close()
        process.wait(timeout=120)


def _check(directory: Path, right: dict[str, bytes]) -> int:
    """Everything held is there and right; how many parameters are held."""
    with FileStore(directory) as store:
        report = store.fsck()
        assert report.clean, str(report)
        held = frozenset().union(*store.holdings().values())
        for digest in held:
            assert worker.content(store.get(digest)) == right[digest]
        return len(held)


def _kill_many(nursery: subprocess.Popen[str], directory: Path, kills: int) -> None:
    chance = random.Random(kills)
    parameters = [worker.parameter(number) for number in range(worker.NUMBERS)]
    right = {one.digest: worker.content(one) for one in parameters}
    held = leftovers = 0
    for number in range(8 * kills):
        if number >= kills and held > 4 and leftovers:
            break
        # On a busy machine writers get little done in 40 ms: give those that come later more.
        assert nursery.stdin
        assert nursery.stdout
        nursery.stdin.write(f"{chance.randrange(10**9)}\n")
        nursery.stdin.flush()
        child = int(nursery.stdout.readline())
        time.sleep(chance.random() * 0.04 * max(1.0, number / kills * 4))
        os.kill(child, signal.SIGKILL)
        assert int(nursery.stdout.readline()) == signal.SIGKILL
        held = max(held, _check(directory, right))
        leftovers += FileStore(directory).fsck().leftovers
    # The writers did get somewhere, and some were killed in the middle of a file.
    assert held > 4
    assert leftovers > 0
    with FileStore(directory, grace_seconds=0) as store:
        store.gc()
        assert store.fsck().leftovers == 0
        assert set(store.digests()) == frozenset().union(*store.holdings().values())


def test_killed_writers(nursery: subprocess.Popen[str], tmp_path: Path) -> None:
    _kill_many(nursery, tmp_path, 40)


@pytest.mark.soak
def test_killed_writers_200_times(nursery: subprocess.Popen[str], tmp_path: Path) -> None:
    _kill_many(nursery, tmp_path, 200)


def test_concurrent_writers_of_the_same_parameters(tmp_path: Path) -> None:
    _run_together(tmp_path, *[("put_all", seed) for seed in range(4)])
    wanted = {worker.parameter(number).digest for number in range(worker.NUMBERS)}
    with FileStore(tmp_path) as store:
        assert set(store.digests()) == wanted
        assert store.holdings() == {f"writer {seed}": wanted for seed in range(4)}
        report = store.fsck()
        assert report.clean, str(report)
        assert (report.checked, report.leftovers) == (len(wanted), 0)


def test_collecting_while_others_put_and_hold(tmp_path: Path) -> None:
    outputs = _run_together(
        tmp_path, *[("hold_and_forget", seed) for seed in range(3)], ("collect", 0)
    )
    freed = int(outputs[-1])
    # The collector was at work all the time, or this test shows nothing.
    assert freed > worker.ENOUGH_BYTES
    assert FileStore(tmp_path).fsck().clean
