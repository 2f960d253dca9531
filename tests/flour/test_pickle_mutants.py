"""Pickles that are changed at random: nothing of them runs, none takes long or much memory.

With as many as are given, for at most so many seconds:

    python -m tests.flour.test_pickle_mutants 100000 1200
"""

from __future__ import annotations

import os
import pickle
import random
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flour.core.errors import FlourError
from flour.pickles.file import unpacked
from flour.sklearn.file import read_as_data
from tests.flour.versions.compare import Archive, archives

#: Opcodes of every kind.
CODES = (
    b"(.0125FIJKLMNRSTUVXabcd}eghijl]opqrst)uGBC"
    b"\x80\x81\x85\x86\x87\x88\x8c\x8e\x8f\x90\x91\x92\x93\x94\x95\x96"
)
#: Times the largest file, and the floor: what freed memory an allocator keeps.
RATIO, FLOOR = 20, 64 << 20
SECONDS = 2.0


class Runs:
    """An object whose pickle runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


class Mutants(NamedTuple):
    """The results of many files."""

    tried: int
    read: int
    longest: float
    grown: int
    largest: int


def mutated(rng: random.Random, data: bytes) -> bytes:
    """A file with one to twenty changes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at, kind = rng.randrange(len(changed)), rng.randrange(5)
        if kind == 0:
            changed[at] = rng.randrange(256)
        elif kind == 1:
            changed[at] = rng.choice(CODES)
        elif kind == 2:
            del changed[at : at + rng.randrange(1, 20)]
        elif kind == 3:
            other = rng.randrange(len(changed))
            changed[at:at] = changed[other : other + rng.randrange(1, 60)]
        else:
            changed[at:at] = bytes([rng.choice(CODES)])
        changed = changed or bytearray(b".")
    return bytes(changed)


def run(count: int, seconds: float, canary: Path) -> Mutants:
    """Read so many changed files, or as many as there is time for."""
    files = [pickle.dumps([Runs(f"touch {canary}"), {"a": (1.5, "b")}], p) for p in (0, 2, 5)]
    for path in archives()[::4]:
        found = Archive(path).files
        files += [
            unpacked(raw) + pickle.dumps(Runs(f"touch {canary}"), 2)
            for name, raw in found.items()
            if name.endswith(("pkl", "joblib")) and len(raw) < 8_000
        ]
    rng, end = random.Random(0), time.monotonic() + seconds
    read, longest, done = 0, 0.0, 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while done < count and time.monotonic() < end:
        data = mutated(rng, rng.choice(files))
        start = time.process_time()
        try:
            read_as_data(data)
            read += 1
        except FlourError:
            pass
        longest = max(longest, time.process_time() - start)
        done += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return Mutants(done, read, longest, grown, max(map(len, files)))


def check(found: Mutants, canary: Path) -> None:
    """Fail if something ran, took long, or much memory."""
    assert not canary.exists()
    assert found.longest < SECONDS, found
    assert found.grown <= RATIO * found.largest + FLOOR, found


def test_a_few_mutants(tmp_path: Path) -> None:
    found = run(500, 20.0, tmp_path / "canary")
    check(found, tmp_path / "canary")


@pytest.mark.soak
def test_a_hundred_thousand_mutants(tmp_path: Path) -> None:
    found = run(100_000, 1_200.0, tmp_path / "canary")
    check(found, tmp_path / "canary")
    assert found.read > found.tried // 100


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        canary = Path(folder) / "canary"
        found = run(int(sys.argv[1]), float(sys.argv[2]), canary)
        print(found)  # noqa: T201 (it is run by hand)
        check(found, canary)
