"""Native stages called directly: memory, tiles, refusals."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import flour
import oven
from flour import Flow
from flour.core.errors import InputError
from flour.ops.categorise import CategoriseText
from oven.compiler import cache
from oven.plans.plan import Plan
from oven.run.native_run import NativeRun, RowsRefused
from oven.run.run_signature import MAX_TILE


def only_run(plan: Plan) -> NativeRun:
    """The one native call of a plan that has nothing else."""
    (step,) = plan.code.steps
    assert isinstance(step, NativeRun)
    return step


def call(plan: Plan, *columns: NDArray[Any]) -> list[NDArray[Any]]:
    run = only_run(plan)
    made = run.run(dict(zip(run.inputs, columns, strict=True)), len(columns[0]))
    return [made[item] for item in run.outputs]


def test_stages_that_follow_each_other_are_one_call() -> None:
    rng = np.random.default_rng(0)
    x = flour.vector("x", 30)
    flow = x.linear(rng.normal(size=(20, 30)), []).tanh().linear(rng.normal(size=(10, 20)), [])
    plan = oven.bake(flow, exact=True)
    assert len(plan.program.stages) > 1
    run = only_run(plan)
    assert len(run.form.rooms) == len(plan.program.stages)
    assert len(run.inputs) == len(run.outputs) == 1


@pytest.mark.parametrize("rows", [0, 1, 5, MAX_TILE, MAX_TILE + 1, 5 * MAX_TILE + 3])
def test_tiles_do_not_show(rows: int) -> None:
    rng = np.random.default_rng(1)
    weights = rng.integers(-3, 4, size=(5, 6)).astype(float)
    plan = oven.bake(flour.vector("x", 6).linear(weights, np.arange(5.0)).add([1.0]), exact=True)
    x = rng.integers(-9, 9, size=(rows, 6)).astype(float)
    (made,) = call(plan, x)
    np.testing.assert_array_equal(made, x @ weights.T + np.arange(5.0) + 1)


def test_memory_around_the_outputs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = oven.bake(flour.vector("x", 3).add([1.0, 2.0, 3.0]))
    guarded: list[NDArray[Any]] = []

    def empty(value: Any, rows: int) -> NDArray[Any]:
        room = np.full((rows + 2, value.type.width), 77.0)
        guarded.append(room)
        return room[1:-1]

    monkeypatch.setattr("oven.run.native_run._empty", empty)
    for rows in (1, 3, 500):
        call(plan, np.ones((rows, 3)))
        np.testing.assert_array_equal(guarded[-1][[0, -1]], 77.0)
        np.testing.assert_array_equal(guarded[-1][1:-1], np.tile([2.0, 3.0, 4.0], (rows, 1)))


def test_threads_have_scratch_memory_of_their_own() -> None:
    from oven.run import native_run

    seen: dict[int, int] = {}
    both = threading.Barrier(2)

    def look() -> None:
        _, start = native_run._scratch_memory(1000)
        seen[threading.get_ident()] = start
        both.wait(30)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen.values())) == 2


def test_parameters_are_not_copied() -> None:
    plan = oven.bake(flour.vector("x", 4).subtract([1.0, 2.0, 3.0, 4.0]))
    (stage,) = plan.program.stages
    (operand,) = (slot.parameter for slot in stage.slots if slot.parameter is not None)
    assert any(operand is kept for kept in only_run(plan).kept)


# --- rows that are refused ------------------------------------------------------------------------


def strict_codes() -> Flow:
    """An encoder that was told to complain about words it has not seen."""
    op = CategoriseText(
        texts=["blue", "red"],
        codes=np.array([0, 1]),
        starts=np.array([0, 2]),
        none=np.array([-1]),
        missing=np.array([-1]),
        unknown=np.array([-1]),
        strict=True,
    )
    return op(flour.category("colour"))


def test_native_code_that_refuses_a_row_says_so() -> None:
    plan = oven.bake(strict_codes())
    assert all(stage.native for stage in plan.program.stages)
    (codes,) = call(plan, np.array(["red", "blue"], object))
    np.testing.assert_array_equal(codes, [1, 0])
    with pytest.raises(RowsRefused):
        call(plan, np.array(["red", "green"], object))


@pytest.mark.parametrize("place", [0, 3, 700])
def test_the_definition_says_what_was_refused(place: int) -> None:
    plan = oven.bake(strict_codes())
    colours = ["red"] * 800
    colours[place] = "green"
    with pytest.raises(InputError, match="green"):
        plan.run(colours)
    np.testing.assert_array_equal(plan.run(["blue"])["output"], [0])


def test_a_entry_passes_refusals_on() -> None:
    from sklearn.preprocessing import OneHotEncoder

    fit = OneHotEncoder(handle_unknown="error").fit([[1.0, 5.0], [2.0, 6.0]])
    plan = oven.bake(flour.from_sklearn(fit))
    known, unknown = np.array([[1.0, 6.0]]), np.array([[1.0, 6.0], [3.0, 5.0]])
    for ask in (plan.run, plan.entry()):
        ask(known)
        with pytest.raises(InputError, match=r"3\.0"):
            ask(unknown)


def test_a_known_shape_compiles_nothing() -> None:
    rng = np.random.default_rng(5)
    x = flour.vector("x", 7)
    oven.bake(x.subtract(rng.normal(size=7)).multiply([2.0]).sum())
    before = cache.counters.compiled
    for width in (3, 9, 40):
        other = flour.vector("y", width).subtract(rng.normal(size=width)).multiply([0.5]).sum()
        oven.bake(other).run(rng.normal(size=(2, width)))
    assert cache.counters.compiled == before
