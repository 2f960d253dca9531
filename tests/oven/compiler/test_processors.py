"""Trees mean the same in code for processors that can do less than this one."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from flour.core.errors import ParameterError
from oven.compiler import levels, machine
from tests.house import run_python

pytestmark = pytest.mark.once

#: The first level of x86-64, for which no code is compiled ahead of time.
V1 = levels.Level(
    "x86-64",
    "x86_64-unknown-linux-gnu",
    "x86-64",
    frozenset(("cmov", "cx8", "fxsr", "mmx", "sse", "sse2")),
)
#: Registers of vectors by level: their bytes, and whether the assembly uses those of 64.
EXPECTED = {"x86-64-v4-vbmi": "64 True", "x86-64-v4": "64 True", "x86-64-v3": "32 False"}
_CODE = """
import sys
from oven.compiler import levels, machine
machine.aim(*sys.argv[1:])
assert machine.features() == sys.argv[2]
import oven
from oven.explain import explain
from flour.language.flow import outputs, source
from flour.core.types import Vector
from tests import ensembles
from tests.ensembles import chains
from tests.flour.test_slices import same
from tests.flour.test_tree_blocks import every_size

shapes = dict(trees=30, depth=5)
same(ensembles.sums(0, sets=True, outputs=3, zeros=True, **shapes), 6)
same(ensembles.sums(1, narrow=True, strict=True, dtype="float32", **shapes), 6)
same(chains(120, 60, 2), 2)
every_size(ensembles.sums(3, trees=40, depth=6), 6)
every_size(ensembles.sums(4, narrow=True, strict=True, trees=40, depth=6), 6, "float32")
# Leaves with numbers of two bytes: by ranks, with sets, with sets of their own, by numbers.
forks = dict(trees=60, depth=11)
for op, width, word in (
    (ensembles.sums(5, **forks), 6, "split64_pairs"),
    (ensembles.sums(6, trees=80, depth=10, sets=True, outputs=3, zeros=True), 6, "split64_pairs"),
    (ensembles.sums(8, narrow=True, strict=True, **forks), 6, "split64_pairs"),
    (ensembles.sums(7, trees=200, depth=9, width=88, sets=True), 88, "split64_known_pairs"),
    (ensembles.sums(9, trees=6, depth=10, width=200), 200, "split64_known_pairs"),
):
    every_size(op, width)
    plan = oven.bake(outputs(y=op(source("X", Vector(width)))))
    assert word in explain(plan, "source"), word
# Columns of few thresholds and of many, whose few rows are ranked in two ways; sets of categories.
for kind in ("float64", "float32"):
    narrow = kind == "float32"
    every_size(ensembles.sums(10, sets=True, narrow=narrow, trees=12, depth=4), 20, kind)
    every_size(chains(7, 60, 3), 3, kind)
# Numbers are tested of no more rows than there are, in three sizes.
from flour.ops.trees.tiles import tiles
for op in (ensembles.sums(11, trees=30, depth=4, width=40),
           ensembles.sums(12, trees=30, depth=4, width=40, outputs=3, narrow=True)):
    assert tiles(op, Vector(40), op.value.array).least <= 8
    every_size(op, 40)
plan = oven.bake(outputs(y=ensembles.sums(2, sets=True, **shapes)(source("X", Vector(6)))))
print(machine.vector_bytes(), "zmm" in explain(plan, "asm"))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
@pytest.mark.parametrize("name", ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_trees_mean_the_same_on_lesser_processors(name: str) -> None:
    level = levels.named(name) or V1
    missing = level.features - {item[1:] for item in machine.features().split(",")}
    if missing:
        pytest.skip(f"this processor has no {', '.join(sorted(missing))}")
    printed = run_python(_CODE, level.cpu, level.listed, level.triple)
    assert printed.strip() == EXPECTED.get(name, "16 False")


_LEVEL = "from oven.compiler import machine; print(machine.fingerprint())"


@pytest.mark.parametrize("level", levels.LEVELS, ids=lambda level: level.name)
def test_code_is_compiled_for_the_level_that_the_environment_names(level: levels.Level) -> None:
    here = machine.host()
    if level not in levels.runnable(here.triple, here.features):
        pytest.skip("this processor cannot run it")
    printed = run_python(_LEVEL, environment={"PRETZEL_PROCESSOR": level.name})
    assert f" {level.cpu} {level.listed} " in printed


@pytest.mark.parametrize(
    "name", ["x86-64-v9", "aarch64" if V1.triple[:6] == platform.machine() else "x86-64-v2"]
)
def test_a_level_that_this_processor_has_not_got_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRETZEL_PROCESSOR", name)
    with pytest.raises(ParameterError, match="PRETZEL_PROCESSOR is a level") as refused:
        machine._asked_for()
    assert refused.value.found == repr(name)


def test_the_kernel_tells_the_level_that_the_compiler_tells() -> None:
    here = machine.host()
    told = machine._told_by_kernel()
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        assert told is None
    else:
        assert told == levels.best(here.triple, here.features)


def test_a_processor_below_all_levels_is_asked_of_the_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags\t: fpu cmov sse sse2 avx2\n")
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "cpuinfo")
    assert machine._told_by_kernel() is None
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "nothing")
    assert machine._told_by_kernel() is None
