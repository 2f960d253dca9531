"""Packs: code compiled ahead of time is used where it fits, and refused with a reason elsewhere."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import flour
import oven
from oven.compiler import cache, levels, machine, packs
from runtime.warming import warm
from tests.house import run_python

pytestmark = pytest.mark.once

#: The level of this machine; every one that runs the suite has a level.
HOST = getattr(levels.best(machine.triple(), machine.features()), "name", "")

_ANSWERS = """
import sys, json
import numpy as np
import oven
from oven.compiler import cache
plan = oven.load(sys.argv[1])
rows = np.arange(12.0).reshape(4, 3)
answers = [plan.run(rows)["output"].tolist(), float(plan.entry()(rows[1])[0])]
print(json.dumps([answers, cache.counters.compiled, cache.counters.from_packs]))
"""


def answers(plan: Path, folder: Path) -> tuple[list[object], int, int]:
    """What a new process answers with the packs of a folder, how much it compiled and found."""
    made = json.loads(run_python(_ANSWERS, str(plan), environment={"PRETZEL_CACHE": str(folder)}))
    return made[0], made[1], made[2]


@pytest.fixture(autouse=True)
def _nothing_is_known() -> Iterator[None]:
    """Packs are looked for, and warned of, anew."""
    for known in (cache._packs, cache._warn):
        known.cache_clear()
    yield
    cache._packs.cache_clear()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "a.plan"
    program = flour.vector("x", 3).linear([[1.5, -2.25, 3.125]], [0.5]).element(0).exp().log1p()
    oven.bake(program).save(path)
    return path


@pytest.fixture(scope="module")
def pack(plan: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    told: list[tuple[str, int]] = []
    into = tmp_path_factory.mktemp("packs")
    (made,) = warm([plan], [HOST], into, lambda *one: told.append(one))
    assert made.functions > 2
    assert told == [(HOST, 1)]
    return made.path


def copied(pack: Path, folder: Path, change: bytes = b"") -> Path:
    content = bytearray(pack.read_bytes())
    if change:
        place = content.index(change)
        content[place] ^= 1
    target = folder / pack.name
    target.write_bytes(content)
    return target


def test_a_process_with_the_pack_compiles_nothing(plan: Path, pack: Path, tmp_path: Path) -> None:
    own, compiled, _ = answers(plan, tmp_path / "empty")
    copied(pack, tmp_path)
    made, here, found = answers(plan, tmp_path)
    assert made == own
    assert (here, found > 2, compiled > 0) == (0, True, True)


def test_the_code_of_a_pack_is_what_is_compiled_here(
    plan: Path, pack: Path, tmp_path: Path
) -> None:
    """Or answers would change by a bit with where the code came from."""
    code = "from oven.compiler import cache; cache.RELEASED /= 'none'\n" + _ANSWERS
    run_python(code, str(plan), environment={"PRETZEL_CACHE": str(tmp_path)})
    opened = packs.read(pack, HOST, cache.compilers())
    compiled = {path.name.partition(".")[0]: path for path in tmp_path.rglob("*.o")}
    shared = compiled.keys() & set(opened)
    assert len(shared) > 2
    for key in shared:
        found = opened.find(key)
        assert found is not None
        assert compiled[key].read_bytes().endswith(found.code)


def test_a_read_only_folder_is_used(plan: Path, pack: Path, tmp_path: Path) -> None:
    copied(pack, tmp_path)
    tmp_path.chmod(0o555)
    try:
        assert answers(plan, tmp_path)[1] == 0
    finally:
        tmp_path.chmod(0o755)


@pytest.mark.parametrize("part", [b"PRETZELP", b'"compilers"', b"PRETZEL"])
def test_a_damaged_pack_is_named_and_bypassed(
    pack: Path, tmp_path: Path, part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copied(pack, tmp_path, part)
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path))
    with pytest.warns(RuntimeWarning, match=f"{path.name} is not used: .*compiled instead"):
        assert path not in {each.path for each in cache._packs("", tmp_path)}


def test_damaged_code_is_not_found(pack: Path, tmp_path: Path) -> None:
    path = tmp_path / pack.name
    content = bytearray(pack.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    whole = packs.read(pack, HOST, cache.compilers())
    damaged = packs.read(path, HOST, cache.compilers())
    keys = list(whole._index)
    assert all(whole.find(key) for key in keys)
    refused = []
    for key in keys:
        try:
            assert damaged.find(key) == whole.find(key)
        except packs.Refused as problem:
            refused.append(str(problem))
    assert refused == ["a part of it is damaged"]
    assert whole.find("of nothing") is None


def test_damaged_code_is_named_and_bypassed(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytearray(pack.read_bytes())
    content[-1] ^= 1
    (tmp_path / pack.name).write_bytes(content)
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "RELEASED", tmp_path / "none")
    (opened,) = cache._packs("", tmp_path)
    with pytest.warns(RuntimeWarning, match=f"{pack.name}: a part of it is damaged; code is"):
        found = [list(cache._in_packs(key)) for key in opened]
    assert [len(each) for each in found].count(0) == 1


def test_a_disk_that_is_full_leaves_nothing_behind(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = tmp_path / "no" / "folder"
    into.parent.write_bytes(b"")  # a file, so that there can be no folder
    with pytest.raises(OSError, match="Not a directory"):
        warm([plan], [HOST], into)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        packs.write(tmp_path / "x.pack", HOST, cache.compilers(), {})
    assert [each.name for each in tmp_path.iterdir()] == ["no"]


def instead(path: Path) -> None:
    """A pipe in the place of the file."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("change", "level", "compilers", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "", "", "it is truncated"),
        (lambda path: path.write_bytes(path.read_bytes()[:-500]), "", "", "it is truncated"),
        (instead, "", "", "it is no pack"),
        (lambda path: path.chmod(0o666), "", "", "other users can write"),
        (Path.exists, "x86-64-v2", "", "its code is for"),
        (Path.exists, "", "another", "another release"),
    ],
    ids=["one byte short", "shorter", "a pipe", "of other users", "another level", "foreign"],
)
def test_a_pack_that_does_not_fit_is_refused(
    pack: Path,
    tmp_path: Path,
    change: Callable[[Path], object],
    level: str,
    compilers: str,
    reason: str,
) -> None:
    path = copied(pack, tmp_path)
    change(path)
    with pytest.raises(packs.Refused, match=reason):
        packs.read(path, level or HOST, compilers or cache.compilers())


def test_a_folder_that_others_can_write_to_is_not_looked_into(pack: Path, tmp_path: Path) -> None:
    path = copied(pack, tmp_path)
    assert path in {each.path for each in cache._packs("", tmp_path)}
    tmp_path.chmod(0o777)
    cache._packs.cache_clear()
    with pytest.warns(RuntimeWarning, match="other users can write to it"):
        assert path not in {each.path for each in cache._packs("", tmp_path)}


def test_packs_for_other_levels_alone_are_named(pack: Path, tmp_path: Path) -> None:
    other = next(level.name for level in levels.LEVELS if level.name != HOST)
    copied(pack, tmp_path).rename(tmp_path / f"{other}.pack")
    with pytest.warns(RuntimeWarning, match=f"they are for {other}, and code here is for"):
        cache._packs("", tmp_path)
    copied(pack, tmp_path)  # nothing is said of folders for machines of several kinds
    cache._packs.cache_clear()
    cache._warn.cache_clear()
    cache._packs("", tmp_path)


def test_the_best_level_is_the_first_that_the_processor_can_run() -> None:
    for level in levels.LEVELS:
        assert levels.best(level.triple, level.listed) == level
        assert levels.named(level.name) == level
    assert levels.best("x86_64-unknown-linux-gnu", "+sse,+sse2") is None
    assert levels.best("riscv64-unknown-linux-gnu", "+sse2") is None


@pytest.mark.parametrize("level", [level.name for level in levels.LEVELS])
def test_code_for_every_level_is_made_on_any_machine(
    plan: Path, tmp_path: Path, level: str
) -> None:
    (made,) = warm([plan], [level], tmp_path)
    assert made.functions > 2
    pack = packs.read(made.path, level, cache.compilers())
    machines = {b"\x3e\x00": "x86", b"\xb7\x00": "aarch64"}  # e_machine of ELF
    for key in pack._index:
        function = pack.find(key)
        assert function is not None
        assert level.startswith(machines[function.code[18:20]])
