"""Plan.run: any layout of rows, any number of them, from any number of threads."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import flour
import oven
from flour import Flow
from flour.core.errors import (
    FlourError,
    InputError,
    MissingColumn,
    NotRectangular,
    WidthMismatch,
    WrongDtype,
)
from objectstore import MemoryStore
from oven.plans.plan import Plan
from oven.run.run_signature import MAX_TILE
from tests.oven.plans.test_saved import same
from tests.oven.programs import PROGRAMS

WIDTH = 6
# All operations here are exact, so that every layout has to give every bit.
OFFSET = np.array([1.0, -2.0, 3.0, 0.5, 0.0, 8.0])


def program() -> Flow:
    x = flour.vector("x", WIDTH)
    moved = x.subtract(OFFSET).multiply([2.0])
    return flour.outputs(moved=moved, top=moved.max(), where=moved.arg_max())


@pytest.fixture(scope="module")
def plan() -> Plan:
    return oven.bake(program())


def rows(count: int, dtype: str = "float64") -> NDArray[Any]:
    return np.arange(count * WIDTH, dtype=dtype).reshape(count, WIDTH) % 17


def expected(x: NDArray[Any]) -> dict[str, Any]:
    x = np.array(x, dtype=x.dtype if x.dtype.kind == "f" else "float64")
    moved = (x - OFFSET.astype(x.dtype)) * x.dtype.type(2)
    return {"moved": moved, "top": moved.max(axis=1), "where": moved.argmax(axis=1)}


def read_only(x: NDArray[Any]) -> NDArray[Any]:
    made = x.copy()
    made.setflags(write=False)
    return made


def unaligned(x: NDArray[Any]) -> NDArray[Any]:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    made = raw[1:].view(x.dtype).reshape(x.shape)
    made[:] = x
    return made


class Other(np.ndarray[Any, Any]):
    """An array of another class."""


LAYOUTS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "plain": lambda x: x,
    "fortran": np.asfortranarray,
    "reversed rows": lambda x: x[::-1].copy()[::-1],
    "reversed columns": lambda x: x[:, ::-1].copy()[:, ::-1],
    "every second row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "every third column": lambda x: np.repeat(x, 3, axis=1)[:, ::3],
    "a window": lambda x: np.pad(x, 3)[3:-3, 3:-3],
    "transposed": lambda x: x.T.copy().T,
    "read only": read_only,
    "unaligned": unaligned,
    "one row for all": lambda x: np.broadcast_to(x[:1], x.shape),
    "one column for all": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "a subclass": lambda x: x.view(Other),
}


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_may_lie_in_memory_as_they_like(
    plan: Plan, layout: str, count: int, dtype: str
) -> None:
    given = LAYOUTS[layout](rows(count, dtype))
    before = np.array(given)
    same(plan.run(given), expected(np.array(given, dtype)))
    np.testing.assert_array_equal(np.array(given), before, err_msg="rows are only read")


def test_numbers_of_the_other_byte_order_become_float64(plan: Plan) -> None:
    for dtype in (">f8", ">f4"):  # as in scikit-learn, which knows this machine's order only
        same(plan.run(rows(3).astype(dtype)), expected(rows(3)))


@pytest.mark.parametrize(
    "count", [0, 1, MAX_TILE - 1, MAX_TILE, MAX_TILE + 1, 3 * MAX_TILE + 5, 20_011]
)
@pytest.mark.parametrize("name", ["moved", "top", "where"])
def test_any_number_of_rows(plan: Plan, count: int, name: str) -> None:
    given = rows(count)
    if count:
        np.testing.assert_array_equal(plan.run(given)[name], expected(given)[name])
    else:
        assert len(plan.run(given)[name]) == 0


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint16", "bool", "float16", "object"])
def test_other_numbers_are_converted_where_nothing_is_lost(plan: Plan, dtype: str) -> None:
    given = rows(5).astype(dtype)
    same(plan.run(given), expected(given.astype("float64")))


def test_lists_are_rows_too(plan: Plan) -> None:
    same(plan.run(rows(3).tolist()), expected(rows(3)))


def test_no_columns_at_all() -> None:
    plan = oven.bake(flour.vector("x", 0).sum())
    np.testing.assert_array_equal(plan.run(np.empty((3, 0)))["output"], np.zeros(3))


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_rows_at_all(name: str) -> None:
    flow, data = PROGRAMS[name]()
    plan = oven.bake(flow)
    none = {k: v[:0] for k, v in data.items()} if isinstance(data, dict) else data[:0]
    want = plan.run(data)
    for output, value in plan.run(none).items():
        assert value.shape[0] == 0
        assert value.shape[1:] == want[output].shape[1:]
        assert value.dtype == want[output].dtype


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (np.ones((2, WIDTH + 1)), WidthMismatch),
        (np.ones((2, WIDTH - 1)), WidthMismatch),
        (np.ones(WIDTH), NotRectangular),
        (np.ones((1, 2, WIDTH)), NotRectangular),
        ([[1.0] * WIDTH, [1.0]], NotRectangular),
        (np.full((2, WIDTH), "a"), InputError),
        (np.ones((2, WIDTH), complex), WrongDtype),
        ({"y": np.ones((2, WIDTH))}, InputError),
        (None, InputError),
    ],
    ids=["wide", "narrow", "one row", "a cube", "ragged", "words", "complex", "name", "none"],
)
def test_rows_that_do_not_fit_are_refused(
    plan: Plan, data: object, problem: type[FlourError]
) -> None:
    with pytest.raises(problem):
        plan.run(data)


def test_a_column_that_is_missing_is_named() -> None:
    flow, data = PROGRAMS["records"]()
    del (short := dict(data))["fare"]
    with pytest.raises(MissingColumn, match="fare"):
        oven.bake(flow).run(short)


def test_inputs_of_different_lengths_are_refused() -> None:
    flow, data = PROGRAMS["several_inputs"]()
    with pytest.raises(NotRectangular):
        oven.bake(flow).run({"x": data["x"], "z": data["z"][:-1]})


def test_answers_belong_to_the_caller(plan: Plan) -> None:
    first = plan.run(rows(4))
    kept = {name: value.copy() for name, value in first.items()}
    first["moved"][:] = -1
    plan.run(rows(9))
    same(plan.run(rows(4)), kept)


# --- threads and memory ---------------------------------------------------------------------------


def test_threads_do_not_meet_in_a_plan() -> None:
    rng = np.random.default_rng(4)
    x = flour.vector("x", 12)
    layered = x.linear(rng.normal(size=(9, 12)), rng.normal(size=9)).softmax()
    shared = oven.bake(flour.outputs(p=layered, best=layered.arg_max(), low=x.select([3, 1]).min()))
    blocks = [rng.normal(size=(count, 12)) for count in (1, 3, 64, 257, 700, 2, 31, 1000)]
    wanted = [shared.run(block) for block in blocks]
    problems: list[BaseException] = []
    start = threading.Barrier(len(blocks))

    def use(block: NDArray[Any], want: dict[str, Any]) -> None:
        try:
            start.wait(30)
            for _ in range(150):
                same(shared.run(block), want)
        except BaseException as problem:  # noqa: BLE001 (seen by the test's own thread)
            problems.append(problem)

    threads = [threading.Thread(target=use, args=pair) for pair in zip(blocks, wanted, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def resident() -> int:
    """Bytes of memory this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def grows(run: Callable[[], object], times: int, most: int) -> int:
    """Bytes that running so often leaves behind. What leaks does so each time; others once."""
    found = most
    for _ in range(3):
        gc.collect()
        before = resident()
        for _ in range(times):
            run()
        gc.collect()
        found = resident() - before
        if found < most:
            break
    return found


@pytest.mark.parametrize("count", [1, 40])
def test_running_does_not_leak(plan: Plan, count: int) -> None:
    given = rows(count)
    runs = 100_000 if count == 1 else 20_000
    for _ in range(2_000):
        plan.run(given)
    # One forgotten float a run would be 2.4 MB.
    assert grows(lambda: plan.run(given), runs, 2 << 20) < 2 << 20


def test_a_plan_that_is_dropped_is_gone() -> None:
    def use() -> None:
        oven.bake(program()).run(rows(2))

    for _ in range(50):
        use()
    assert grows(use, 1_000, 8 << 20) < 8 << 20


# --- what it holds -----------------------------------------------------------------------------


def test_a_plan_names_every_parameter_it_refers_to() -> None:
    flow, _ = PROGRAMS["wide_linear"]()
    plan = oven.bake(flow)
    written = {item for node in flow.nodes() for item in node.op.parameters()}
    read = {item for stage in plan.program.stages for item in stage.parameters()}
    assert written <= plan.program.parameters()
    assert read <= plan.program.parameters()
    assert read - written, "the kernel's own order of the weights counts too"


def test_an_owner_that_lets_go_frees_what_was_its_own() -> None:
    store = MemoryStore()
    for name in ("scaled_logistic", "layers"):
        store.hold(name, oven.bake(PROGRAMS[name]()[0]).program.parameters())
    own = store.own_bytes("layers")
    assert store.release("layers") == own > 0
    assert set(store.holdings()) == {"scaled_logistic"}
