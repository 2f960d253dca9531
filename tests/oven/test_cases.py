"""Native code answers as the reference does, for every operator."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

import oven
from flour.core.reference import evaluate
from flour.core.source import Source
from flour.core.sparse import Sparse, densify
from flour.language.flow import Flow, source
from oven.plans.plan import Plan
from tests.cases import CASES, Case
from tests.columns import assert_close
from tests.flour.test_cases import columns

RUNNABLE = [case for case in CASES if not isinstance(case.op, Source)]


def program(case: Case) -> Flow:
    """The operator over named inputs."""
    return case.op(*(source(f"x{i}", kind) for i, kind in enumerate(case.inputs)))


def run_both(plan: Plan, case: Case, rows: int, *, odd: bool) -> tuple[object, object]:
    """(native, reference) for the same columns."""
    given = {f"x{i}": value for i, value in enumerate(columns(case, rows, odd=odd, seed=rows))}
    native = plan.run_columns(given, rows)["output"]
    item = plan.flow.node
    return native, evaluate([item], given)[item]


@pytest.mark.parametrize("case", RUNNABLE, ids=[case.name for case in RUNNABLE])
def test_native_code_answers_as_the_reference(case: Case) -> None:
    if case.op.name == "ParseCsv" and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 refuses lines with NUL: docs/contributing/platforms.md")
    if case.op.name == "Opaque":
        pytest.importorskip("onnxruntime")
    for exact in (True, False):
        plan = oven.bake(program(case), exact=exact)
        assert all(stage.native for stage in plan.program.stages) == case.native
        for rows, odd in itertools.product((0, 1, 3, 300), {False, case.odd}):
            native, reference = run_both(plan, case, rows, odd=odd)
            assert_close(densify(native), densify(reference), case.tolerance, case.name)
    # A row alone is answered as among others.
    many, _ = run_both(plan, case, 5, odd=False)
    given = {f"x{i}": value for i, value in enumerate(columns(case, 5, odd=False, seed=5))}
    for row in range(5):
        one = {name: _row(value, row) for name, value in given.items()}
        alone = plan.run_columns(one, 1)["output"]
        want = _row(densify(many), row)
        assert_close(densify(alone), densify(want), case.tolerance, case.name)


def _row(value: object, row: int) -> object:
    if isinstance(value, dict):
        return {name: _row(column, row) for name, column in value.items()}
    if isinstance(value, list):
        return value[row : row + 1]
    if isinstance(value, Sparse):
        return Sparse.of(value.toarray()[row : row + 1])
    return np.asarray(value, dtype=getattr(value, "dtype", object))[row : row + 1]
