"""Wide sparse columns go in and out of native code without their zeros."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import flour
import oven
from flour.core.sparse import Sparse, densify
from flour.core.types import Type, Vector
from oven.codegen import stages
from tests import checked
from tests.cases import CASES, Case
from tests.columns import assert_close
from tests.flour.test_cases import columns
from tests.oven.plans.test_bounds import emitted
from tests.oven.test_cases import program, run_both


def is_sparse(kind: Type) -> bool:
    return isinstance(kind, Vector) and kind.sparse


SPARSE = [
    case
    for case in CASES
    if case.native and any(map(is_sparse, (program(case).node.type, *case.inputs)))
]
IDS = [case.name for case in SPARSE]


@pytest.fixture
def everything_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "NARROW", -1)


@pytest.mark.usefixtures("everything_is_wide")
@pytest.mark.parametrize("case", SPARSE, ids=IDS)
def test_what_is_stored_is_enough(case: Case) -> None:
    plan = oven.bake(program(case))
    for rows in (0, 1, 3, 300):
        native, reference = run_both(plan, case, rows, odd=case.odd)
        if isinstance(native, Sparse):
            steps = np.diff(native.indices)[np.diff(native.rows) == 0]
            assert (steps > 0).all(), "columns ascend, each once"
        assert_close(densify(native), densify(reference), case.tolerance, case.name)


@pytest.mark.usefixtures("everything_is_wide")
@pytest.mark.parametrize("case", SPARSE, ids=IDS)
def test_what_is_stored_stays_in_its_memory(case: Case) -> None:
    plan = emitted(program(case))
    for stage in plan.program.stages:  # kernels read rows with their zeros
        wide = any(stage.stores(v) for v in (*stage.inputs, *stage.outputs))
        assert wide or stage.kind == stages.KERNEL
    for rows in (0, 1, 3):
        given = {f"x{i}": value for i, value in enumerate(columns(case, rows, odd=case.odd))}
        found = checked.run(plan, given, rows)["output"]
        assert len(densify(found)) == rows


def counts() -> flour.Flow:
    words = [f"w{i}" for i in range(100_000)]
    return flour.text("x").tokenize(r"\w+").word_ngrams(words)


def test_a_row_of_many_columns_takes_what_it_stores() -> None:
    plan = oven.bake(counts().multiply(np.arange(100_000.0)))
    documents = ["w7 w99999 w7 none", "", "w1"]
    found = plan.run(documents)["output"]
    assert found.nnz == 3
    assert found[0, 7] == 14
    assert found[0, 99999] == 99999
    # 300,000 cells of eight bytes if it were dense.
    assert plan.begin(documents).memory_bytes < 100_000


def test_chunks_are_put_together() -> None:
    plan = oven.bake(counts())
    documents = [" ".join(f"w{(i * j) % 977}" for j in range(i % 7)) for i in range(50)]
    work = plan.begin(documents)
    with ThreadPoolExecutor(2) as threads:
        for start in (0, 13, 40):
            chunk = work.chunk(start, {0: 13, 13: 40, 40: 50}[start])
            memory = bytearray(work.memory_bytes)
            threads.submit(work.step, 0, chunk, memory).result()
    found, want = work.finish()["output"], plan.run(documents)["output"]
    assert (found != want).nnz == 0


def test_what_one_run_stores_another_reads() -> None:
    """A black stage in between, and a kernel that needs the zeros."""
    x = flour.vector("x", 200, sparse=True)
    flow = x.multiply(np.full(200, 2.0)).to_dense().linear(np.ones((3, 200)), np.zeros(3))
    plan = oven.bake(flow, exact=True)
    dense = np.zeros((4, 200))
    dense[1, 7], dense[3, 199] = 1.0, 5.0
    assert plan.run(dense)["output"][:, 0].tolist() == [0, 2, 0, 10]
