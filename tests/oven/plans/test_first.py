"""The first plan of a process: what loading it brings along."""

from __future__ import annotations

from pathlib import Path

import pytest

import flour
import oven
from tests.house import run_python

pytestmark = pytest.mark.once

LOADED = """
import sys
import numpy as np
import oven
plan = oven.load(sys.argv[1])
assert plan.entry()(np.ones(3)) == (6.0,), plan.entry()(np.ones(3))
assert not plan.program.in_memory
print(*sys.modules)
"""
#: Rules and what they are about, compilers, and what finds out versions or starts processes.
NEEDLESS = {
    "oven.optimise.rewrite",
    "oven.optimise.rules",
    "oven.compiler.native",
    "flour.ops.trees.trees",
    "llvmlite.binding",
    "numba",
    "importlib.metadata",
    "email",
    "subprocess",
}


def test_a_known_plan_needs_no_rules_or_compilers(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    oven.bake(flour.vector("x", 3).linear([[1.0, 2.0, 3.0]], [0.0]).element(0)).save(path)
    assert oven.load(path).run([[1.0, 1.0, 1.0]])["output"].tolist() == [6.0]
    loaded = set(run_python(LOADED, str(path)).split())
    assert "oven.plans.image" in loaded
    assert not loaded & NEEDLESS
