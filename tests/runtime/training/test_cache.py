"""Stored results: damage, budgets, and other processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pretzel.training import TrainingCache, train
from runtime.errors import BadCall
from tests.runtime.conftest import Clock
from tests.runtime.training.recipes import Inline, cache, ran, recipe

KEYS = [f"{number:032x}" for number in range(6)]


@pytest.mark.parametrize("place", ["results", "steps"])
def test_damaged_results_are_computed_again(tmp_path: Path, place: str) -> None:
    for _ in range(2):
        with cache(tmp_path) as opened:
            outcome = train(recipe(tmp_path), opened, None, Inline())
        assert ran(tmp_path), place
        assert outcome.served == ("strong", "weak")
        for path in (tmp_path / "cache" / place).iterdir():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
    with cache(tmp_path) as opened:
        assert not any(opened.find(path.name) for path in (tmp_path / "cache" / "steps").iterdir())


def test_a_result_that_is_gone_is_computed_again(tmp_path: Path) -> None:
    with cache(tmp_path) as opened:
        opened.put(KEYS[0], b"a")
        for path in (tmp_path / "cache" / "results").iterdir():
            path.unlink()
    with cache(tmp_path) as opened:
        assert opened.find(KEYS[0]) is None
        assert opened.put(KEYS[0], b"a", 0.5) == opened.find(KEYS[0])


def test_what_was_used_longest_ago_is_removed_first(tmp_path: Path) -> None:
    clock = Clock(1_000_000.0)
    with cache(tmp_path, clock) as opened:
        for key in KEYS:
            opened.put(key, key.encode())
            clock.now += 1
        opened.find(KEYS[0])
    with cache(tmp_path, clock) as opened:
        assert opened.collect(1000) == 0
        assert opened.collect(100) == 3 * 32
        assert [opened.find(key) is not None for key in KEYS] == [True, *[False] * 3, True, True]
        assert sum(1 for _ in (tmp_path / "cache" / "steps").iterdir()) == 3


def test_what_is_used_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with cache(tmp_path) as opened:
        opened.put(KEYS[0], b"used")
        with cache(tmp_path) as other:  # as another process would
            other.put(KEYS[1], b"also")
            assert opened.collect(0) == other.collect(0) == 0
            assert caplog.text.count("in use have 8 bytes, more than the 0 that may stay") == 2
        assert opened.collect(0) == 4
        assert opened.find(KEYS[0]) is not None
        assert opened.find(KEYS[1]) is None


def test_the_versions_that_are_served_stay(tmp_path: Path) -> None:
    from pretzel.training import Publisher
    from runtime import Runtime

    with Runtime() as runtime:
        with cache(tmp_path) as opened:
            train(recipe(tmp_path), opened, Publisher("m", runtime), Inline())
            assert opened.collect(0) == 0
        with cache(tmp_path) as opened:
            opened.collect(0)
        assert not [*(tmp_path / "cache" / "results").iterdir()]
        assert runtime.predict("m", [1.0, 0.0])["label"] == "yes"


def test_equal_results_are_one_file(tmp_path: Path) -> None:
    with cache(tmp_path) as opened:
        assert opened.put(KEYS[0], b"a").digest == opened.put(KEYS[1], b"a").digest
    assert sum(1 for _ in (tmp_path / "cache" / "results").iterdir()) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such modes")
def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(BadCall, match="only you can write"):
        TrainingCache(folder)
