"""numba as the compiler of every stage: its code answers with the bits of ours.

With PRETZEL_COMPILER=numba, a pass of `.ci/run`, all cases of the table are compared.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import ParameterError
from flour.core.sparse import densify
from oven.compiler import cache, machine
from oven.errors import CompileError, NoCompiler
from oven.explain import explain
from oven.plans import program_image
from tests.cases import Case
from tests.flour.test_cases import columns
from tests.oven.test_cases import RUNNABLE, program

pytestmark = pytest.mark.once

_TABLE = [case for case in RUNNABLE if case.native]
#: Elsewhere: sums, divisions, casts, a function in Python, and a kernel.
_FEW = {"Sum", "Modulo", "Cast", "Sigmoid", "Linear"}
_CASES = list({case.op.name: case for case in _TABLE if case.op.name in _FEW}.values())


@pytest.mark.parametrize(
    "case",
    _TABLE if os.environ.get("PRETZEL_COMPILER") == "numba" else _CASES,
    ids=lambda case: case.name,
)
def test_numbas_code_has_the_bits_of_ours(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    by_numba = [oven.bake(program(case), exact=exact, compiler="numba") for exact in (True, False)]
    monkeypatch.delenv("PRETZEL_COMPILER", raising=False)
    for theirs in by_numba:
        ours = oven.bake(program(case), exact=theirs.exact)
        assert (ours.program.compiler, theirs.program.compiler) == ("pretzel", "numba")
        for rows in (1, 300):
            drawn = columns(case, rows, odd=case.odd, seed=rows)
            given = {f"x{place}": value for place, value in enumerate(drawn)}
            found, wanted = (plan.run_columns(given, rows)["output"] for plan in (theirs, ours))
            assert _bits(densify(found)) == _bits(densify(wanted)), f"{rows} rows, {theirs.exact}"


def _bits(answer: Any) -> object:
    """What is equal only where all bits are, but for those of a NaN."""
    if isinstance(answer, dict):
        return {name: _bits(column) for name, column in answer.items()}
    if isinstance(answer, list):
        return [*map(_bits, answer)]
    numbers = np.array(answer)
    if numbers.dtype == object:
        return repr(numbers.tolist())
    if numbers.dtype.kind == "f":
        numbers[np.isnan(numbers)] = np.nan
    return str(numbers.dtype), numbers.shape, numbers.tobytes()


def _plan(compiler: Any = "numba") -> oven.Plan:
    return oven.bake(flour.vector("x", 3).subtract([1.0, 2.0, 3.0]).sum(), compiler=compiler)


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRETZEL_COMPILER", raising=False)


@pytest.mark.usefixtures("usual")
def test_both_have_code_of_their_own_and_the_plan_tells_by_whom() -> None:
    ours, theirs = _plan("pretzel"), _plan()
    mine, other = (plan.program.stages[0].source for plan in (ours, theirs))
    assert other == machine.BY_NUMBA + mine
    assert cache.address(mine, ours.program.stages[0].name) != cache.address(
        other, theirs.program.stages[0].name
    )
    assert "compiled by numba" in explain(theirs).splitlines()[0]
    assert "numba" not in explain(ours).splitlines()[0]
    narrow = np.ones((2, 3), np.float32)
    assert theirs.run(narrow)["output"].tolist() == ours.run(narrow)["output"].tolist()
    assert [plan.program.compiler for plan in theirs.variants.here] == ["numba"]


@pytest.mark.usefixtures("usual")
def test_images_and_files_do_not_remember_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_image, "KEPT", [True])
    monkeypatch.setenv("PRETZEL_CACHE", str(tmp_path / "code"))
    _plan().save(tmp_path / "a.plan")
    assert not list(tmp_path.rglob("*.image"))
    assert oven.load(tmp_path / "a.plan").program.compiler == "pretzel"
    assert _plan("pretzel").program.compiler == "pretzel"
    assert _plan().program.compiler == "numba", "though there is an image of the program now"


def test_the_variable_decides_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRETZEL_COMPILER", "numba")
    assert _plan("pretzel").program.compiler == "numba"
    cache.compilers.cache_clear()
    by_numba = cache.compilers()
    monkeypatch.delenv("PRETZEL_COMPILER")
    cache.compilers.cache_clear()
    assert cache.compilers() != by_numba, "so no entry, image or pack is of both"


@pytest.mark.usefixtures("usual")
def test_another_compiler_is_refused_and_a_missing_one_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ParameterError, match=r"(?s)'gcc'.*pretzel, numba"):
        _plan("gcc")
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(NoCompiler, match="pip install numba"):
        _plan()


@pytest.mark.usefixtures("usual")
def test_what_numba_refuses_is_a_compile_error() -> None:
    source = machine.BY_NUMBA + "def stage(a, b, c, d):\n    return ld_int64(a)\n"
    with pytest.raises(CompileError, match="stage"):
        cache.address(source, "stage")
