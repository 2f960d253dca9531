"""The code cache: shared by processes, safe against crashes, damage and strangers."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
import oven
from objectstore import system
from oven.compiler import cache, levels, machine, packs, source_check
from oven.compiler.intrinsics.vocabulary import vocabulary
from oven.compiler.native import compile_source
from oven.errors import CompileError

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[3]
SOURCE = """\
def probe(params, io, n, scratch):
    return n + {number}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and a process that remembers nothing."""
    place = tmp_path / "code"
    monkeypatch.setenv("PRETZEL_CACHE", str(place))
    monkeypatch.setattr(cache, "_addresses", {})
    monkeypatch.setattr(cache, "_writes", 0)
    monkeypatch.setattr(cache, "counters", cache.Counters())
    yield place
    place.chmod(0o700) if place.exists() else None


def address(number: int = 1) -> int:
    return cache.address(SOURCE.format(number=number), "probe")


def entry(folder: Path, number: int = 1) -> Path:
    digest = cache.key(SOURCE.format(number=number))
    made = cache._path(digest)
    assert made.is_relative_to(folder)
    return made


def forget() -> None:
    cache._addresses.clear()


def answer(found: int, rows: int) -> int:
    """What the code at this address answers."""
    return int(machine.STAGE(found)(0, 0, rows, 0))


def counts() -> tuple[int, int, int, int]:
    found = cache.counters
    return found.compiled, found.from_disk, found.from_memory, found.rebuilt


def word_files() -> set[str]:
    """The files of ours in which words of emitted code are defined."""
    words = [word for word in vocabulary().values() if not isinstance(word, int)]
    functions: list[Any] = [getattr(word, "function", word.write) for word in words]
    functions += [word.writer for word in words if hasattr(word, "writer")]
    paths = [Path(each.__code__.co_filename) for each in functions if hasattr(each, "__code__")]
    place = ROOT / "oven" / "compiler"
    return {path.relative_to(place).as_posix() for path in paths if path.is_relative_to(place)}


def test_the_text_of_every_word_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "oven" / "compiler", tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "cache.py"))
    known = {cache._vocabulary()}
    files = word_files() | {f"intrinsics/{each.name}" for each in tmp_path.glob("intrinsics/*.py")}
    assert files >= {"intrinsics/memory.py", "intrinsics/chunks.py", "intrinsics/text.py"}
    for name in files:
        with (tmp_path / name).open("a", encoding="utf-8") as file:
            file.write("# another word\n")
        assert cache._vocabulary() not in known, name
        known.add(cache._vocabulary())


@pytest.mark.usefixtures("folder")
def test_code_is_compiled_once_and_remembered() -> None:
    first = address()
    assert address() == first
    assert counts() == (1, 0, 1, 0)
    forget()
    assert answer(address(), 5) == answer(first, 5) == 6
    assert counts() == (1, 1, 1, 0)


def test_the_directory_is_private(folder: Path) -> None:
    address()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not stat.S_IMODE(entry(folder).stat().st_mode) & 0o022


def content(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """A change of the bytes of a file."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def by_a_link(path: Path) -> None:
    path.symlink_to(path.rename(path.parent.parent.parent / "elsewhere"))


def by_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("change", "rebuilt"),
    [
        pytest.param(content(lambda _: b""), 1, id="empty"),
        pytest.param(content(lambda raw: raw[:20]), 1, id="header"),
        pytest.param(content(lambda raw: raw[:-1]), 1, id="cut"),
        pytest.param(content(lambda raw: raw + b"\0"), 1, id="longer"),
        pytest.param(content(lambda raw: b"X" + raw[1:]), 1, id="magic"),
        pytest.param(content(lambda r: r[:-40] + bytes([r[-40] ^ 1]) + r[-39:]), 1, id="bit"),
        pytest.param(content(lambda raw: raw[:8] + bytes(16) + raw[24:]), 1, id="checksum"),
        pytest.param(lambda path: path.chmod(0o666), 1, id="others could have written it"),
        pytest.param(by_a_link, 0, id="a link, which is not followed"),
        pytest.param(by_a_pipe, 1, id="a pipe, which does not hang"),
    ],
)
def test_an_entry_that_is_not_ours_is_built_again(
    folder: Path, change: Callable[[Path], object], rebuilt: int
) -> None:
    address(2)
    path = entry(folder, 2)
    change(path)
    forget()
    assert address(2)
    assert counts() == (2, 0, 0, rebuilt)
    assert cache._parse(path.read_bytes(), f"probe_{path.name[:32]}") is not None


def test_another_functions_entry_is_not_taken_for_ours(folder: Path) -> None:
    address(3)
    address(4)
    entry(folder, 3).write_bytes(entry(folder, 4).read_bytes())
    forget()
    address(3)
    assert counts() == (3, 0, 0, 1)


def test_two_functions_of_one_name_do_not_meet(folder: Path) -> None:
    assert address(5) != address(6)
    five, six = (entry(folder, number).read_bytes() for number in (5, 6))
    assert cache.key(SOURCE.format(number=5)).encode() in five
    assert cache.key(SOURCE.format(number=6)).encode() in six


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_others_can_write_to_is_not_used(folder: Path, mode: int) -> None:
    address(7)
    forget()
    folder.chmod(mode)
    cache._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match="other users can write"):
        address(7)
    assert counts()[:2] == (2, 0)


@pytest.mark.usefixtures("folder")
def test_a_directory_of_somebody_else_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    address(8)
    forget()
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    monkeypatch.setattr(system, "ROOT", 4322)
    cache._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match="is not used"):
        address(8)
    assert counts()[:2] == (2, 0)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("whole", [False, True], ids=["entry", "folder"])
def test_what_stands_in_the_place_of_an_entry_is_replaced(folder: Path, *, whole: bool) -> None:
    address()
    made = entry(folder)
    if whole:
        shutil.rmtree(made.parent)
        made.parent.write_text("no folder", encoding="utf-8")
    else:
        made.unlink()
        (made / "inner").mkdir(parents=True)
    forget()
    address()
    assert made.is_file()
    forget()
    compiled = cache.counters.compiled
    address()
    assert cache.counters.compiled == compiled


def test_a_place_that_cannot_be_written_costs_only_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a directory", encoding="utf-8")
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path / "file" / "code"))
    monkeypatch.setattr(cache, "counters", cache.Counters())
    assert address(12)
    assert counts() == (1, 0, 0, 0)


def test_the_least_used_entries_are_dropped_first(folder: Path) -> None:
    for number in range(20, 25):
        address(number)
        os.utime(entry(folder, number), (1e9 + number, 1e9 + number))
    size = entry(folder, 20).stat().st_size
    cache.evict(3 * size + size // 2)
    kept = [number for number in range(20, 25) if entry(folder, number).exists()]
    assert kept == [22, 23, 24]


def test_a_used_entry_becomes_young_again(folder: Path) -> None:
    address(26)
    os.utime(entry(folder, 26), (1e9, 1e9))
    forget()
    address(26)
    assert entry(folder, 26).stat().st_mtime > 1.6e9


def test_what_dead_writers_left_is_swept_up(folder: Path) -> None:
    address(27)
    shelf = entry(folder, 27).parent
    old, young = shelf / ".abc.1.1", shelf / ".abc.2.2"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1e9, 1e9))
    cache.evict(1 << 30)
    assert (old.exists(), young.exists(), entry(folder, 27).exists()) == (False, True, True)


@pytest.mark.usefixtures("folder")
def test_threads_that_want_the_same_code_compile_it_once() -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(address(28))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert cache.counters.compiled == 1


@pytest.mark.usefixtures("folder")
def test_looking_for_code_does_not_wait_until_it_is_compiled() -> None:
    text = SOURCE.format(number=29)
    digest = cache.key(text)
    found: list[int | None] = []

    def build(unique: str) -> machine.MachineCode:
        other = threading.Thread(target=lambda: found.append(cache.find(digest, "probe")))
        other.start()
        other.join(10)
        found.append(-1)
        return compile_source(text.replace("probe", unique), unique)

    made = cache.machine_code(digest, "probe", build)
    assert found == [None, -1], "it was looked for while it was being compiled"
    assert cache.find(digest, "probe") == made


# --- processes ---------------------------------------------------------------------------------

RACE = """
import numpy as np, flour, oven
for width in (3, 4):
    x = flour.vector("x", width)
    plan = oven.bake(x.add(np.arange(float(width))).multiply([3.0]).sum())
    assert plan.run(np.ones((2, width)))["output"][0] == 3 * sum(range(1, width + 1))
if MUST_BE_WARM:
    assert (oven.compiler.cache.counters.compiled, oven.compiler.cache.counters.rebuilt) == (0, 0)
"""


def python(code: str, folder: Path) -> subprocess.Popen[str]:
    """A process with this cache; it complains with its exit code."""
    environment = {**os.environ, "PRETZEL_CACHE": str(folder)}
    return subprocess.Popen([sys.executable, "-c", code], text=True, env=environment, cwd=ROOT)


def test_processes_that_start_together_share_the_cache(folder: Path) -> None:
    first = [python("MUST_BE_WARM = False" + RACE, folder) for _ in range(3)]
    assert [process.wait(300) for process in first] == [0, 0, 0]
    assert python("MUST_BE_WARM = True" + RACE, folder).wait(300) == 0
    assert not [path for path in folder.rglob(".*") if path.is_file()], "no temporary is left"


DYING = """
import os, sys
from pathlib import Path
from oven.compiler import cache
write = Path.write_bytes
def half(self, data):
    write(self, data[: len(data) // 2])
    os._exit(9)
Path.write_bytes = half
cache.address("def probe(params, io, n, scratch):\\n    return n + 99\\n", "probe")
"""


def test_a_writer_that_dies_half_way_leaves_nothing_to_read(folder: Path) -> None:
    assert python(DYING, folder).wait(300) == 9
    assert list(folder.rglob(".*")), "it died while writing"
    assert not entry(folder, 99).exists()
    address(99)
    assert counts() == (1, 0, 0, 0)
    assert entry(folder, 99).exists()


# --- numba ---------------------------------------------------------------------------------------

#: What our lowering refuses, and numba takes.
_POWER = "def power(params, io, n, scratch):\n    return n ** (params + 3)\n"


def test_code_by_numba_depends_on_its_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer(cache.address(_POWER, "power"), 5) == 125
    assert len(list(folder.rglob("*.o"))) == 2, "that it is numba's, and the code"
    forget()
    assert answer(cache.address(_POWER, "power"), 4) == 64
    assert cache.counters.compiled == 1
    monkeypatch.setattr(cache, "_numba_version", lambda: "numba 0.1")
    forget()
    assert cache.find(cache.key(_POWER), "power") is None
    assert answer(cache.address(_POWER, "power"), 3) == 27
    assert cache.counters.compiled == 2
    forget()
    cache.address(_POWER, "power")
    monkeypatch.undo()
    forget()
    monkeypatch.setenv("PRETZEL_CACHE", str(folder))
    assert cache.find(cache.key(_POWER), "power"), "that of the other version is still there"


def test_a_pack_has_code_by_numba_under_its_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = levels.best(machine.triple(), machine.features())
    assert level is not None
    made = cache.collect(lambda: cache.address(_POWER, "power"))
    packs.write(folder / f"{level.name}.pack", level.name, cache.compilers(), made)
    cache._packs.cache_clear()
    found = cache.find(cache.key(_POWER), "power")
    assert found is not None
    assert answer(found, 2) == 8
    monkeypatch.setattr(cache, "_numba_version", lambda: "numba 0.1")
    forget()
    assert cache.find(cache.key(_POWER), "power") is None
    cache._packs.cache_clear()


@pytest.mark.usefixtures("folder")
def test_other_code_does_not_depend_on_the_version_of_numba(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address(7)
    monkeypatch.setattr(cache, "_numba_version", lambda: "numba 0.1")
    forget()
    address(7)
    assert counts() == (1, 1, 0, 0)


# --- what is compiled ---------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "line",
    [
        "__import__('os').system('x')",
        "open(n)",
        "x = math.sqrt.__globals__",
        "x = params[0]",
        "import os",
        "x = lambda: 1",
        "x = [n for n in range(3)]",
        "x = 'text'",
        "print(n)",
        "ld_int64(io, index=1)",
        "raise n",
        "with n: pass",
        "c_call_1(n, n)",
        "call_stage(n, n, n, n, n)",
    ],
)
def test_text_that_is_not_arithmetic_is_not_compiled(line: str) -> None:
    source = f"def probe(params, io, n, scratch):\n    {line}\n    return 0\n"
    with pytest.raises(CompileError):
        cache.address(source, "probe")
    assert cache.counters.compiled == 0


@pytest.mark.parametrize(
    "source",
    [
        "def probe(params, io, n, scratch=open('x')):\n    return 0\n",
        "def probe(params, io: open('x'), n, scratch):\n    return 0\n",
        "@open\ndef probe(params, io, n, scratch):\n    return 0\n",
        "def probe(params, io, n, scratch):\n    return 0\nopen('x')\n",
        "def other(params, io, n, scratch):\n    return 0\n",
        "def probe(params, io, n, scratch):\n  return (\n",
        "probe = 1\n",
    ],
)
def test_more_than_one_plain_function_is_not_compiled(source: str) -> None:
    with pytest.raises(CompileError):
        source_check.vet(source, "probe", {"open"})


def test_what_stages_emit_is_arithmetic() -> None:
    plan = oven.bake(flour.vector("x", 3).subtract([1.0, 2.0, 3.0]).sigmoid())
    for stage in plan.program.stages:
        source_check.vet(stage.source, stage.name, vocabulary())
        assert compile_source(stage.source, stage.name).code
    np.testing.assert_allclose(plan.run(np.array([[1.0, 2.0, 3.0]]))["output"], 0.5)
