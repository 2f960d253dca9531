"""The entry answers as `Plan.run` does, for every kind of row and block, and leaks nothing."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

import oven
from flour import record, text
from flour.core.errors import FlourError
from flour.core.types import Scalar, Vector
from flour.language.flow import Flow, outputs, source
from oven.entry import array_entry, builtin
from oven.plans.plan import Plan
from tests.house import entered

WIDTH = 5
rng = np.random.default_rng(7)


def scores(dtype: str = "float64") -> Flow:
    """Three scores of five columns."""
    weights, bias = rng.normal(size=(3, WIDTH)).astype(dtype), rng.normal(size=3).astype(dtype)
    return source("x", Vector(WIDTH, dtype)).linear(weights, bias)


def classifier(labels: list[Any], dtype: str = "float64") -> Flow:
    """Labels, probabilities and one score: a string or a number, a vector, a number."""
    made = scores(dtype)
    label = made.arg_max().take(labels)
    return outputs(label=label, probabilities=made.softmax(), top=made.max())


def many_types() -> Flow:
    """One number of every dtype that a column can have, and a vector of some."""
    x = source("x", Vector(WIDTH)).clip([-100.0], [100.0])
    one = x.element(2)
    kinds = ("float64", "float32", "int64", "int32", "int16", "int8", "bool")
    unsigned = ("uint64", "uint32", "uint16", "uint8")
    positive = one.clip([0.0], [200.0])
    made = {kind: one.cast(kind) for kind in kinds[1:]}
    made |= {kind: positive.cast(kind) for kind in unsigned}
    return outputs(float64=one, **made, **{f"many_{kind}": x.cast(kind) for kind in kinds[1:]})


def twins() -> Flow:
    """Outputs that are the same value: vectors, numbers, strings and what they are numbered by."""
    made = scores()
    best, top, vector = made.arg_max(), made.max(), made.softmax()
    names = best.take(["yes", "no", "né"])
    return outputs(
        a=vector, b=names, c=top, d=best, e=vector, f=top, g=best.take(["a", "b", "c"]), h=vector
    )


PROGRAMS = {
    "twins": twins,
    "numbers": lambda: classifier([10, -20, 30]),
    "strings": lambda: classifier(["yes", "no", "né"]),
    "float32": lambda: classifier([1, 2, 3], "float32"),
    "vector": scores,
    "types": many_types,
}


@pytest.fixture(params=PROGRAMS, scope="module")
def plan(request: pytest.FixtureRequest) -> Plan:
    """A plan of each kind."""
    make: Callable[[], Flow] = PROGRAMS[request.param]
    return oven.bake(make())


def of_run(plan: Plan, block: Any) -> tuple[Any, ...]:
    """What the plan says of a block, past its entry."""
    return tuple(plan.answer(block).values())


def same(got: tuple[Any, ...], want: tuple[Any, ...]) -> None:
    """Equal values, dtypes and shapes."""
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        assert type(mine) is type(theirs)
        if isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype
            assert mine.flags.writeable
            assert mine.flags.c_contiguous
        np.testing.assert_array_equal(mine, theirs)


def same_row(got: tuple[Any, ...], want: tuple[Any, ...]) -> None:
    """The same values as row 0 of a block's answers."""
    same(got, tuple(array_entry._only(value) for value in want))


def data(plan: Plan, rows: int, seed: int = 0) -> Any:
    """A block in the plan's own dtype."""
    (kind,) = plan.inputs.values()
    assert isinstance(kind, Vector)
    return np.random.default_rng(seed).normal(size=(rows, WIDTH)).astype(kind.dtype)


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 3000])
def test_a_block_answers_as_run_does(plan: Plan, rows: int) -> None:
    block = data(plan, rows)
    same(plan.entry()(block), of_run(plan, block))
    same(tuple(plan.run(block).values()), of_run(plan, block))


def test_a_row_answers_as_a_block_of_one(plan: Plan) -> None:
    call, block = plan.entry(), data(plan, 20)
    for row in block:
        want = of_run(plan, row[None])
        same_row(call(row), want)
        same_row(call(row.tolist()), want)
        same_row(call(tuple(row.tolist())), want)


def test_rows_of_whole_numbers_and_missing_values() -> None:
    plan = oven.bake(scores())
    call = plan.entry()
    rows: list[list[Any]] = [[1, -1, 0, 2**53 + 1, -(2**62)], [1.5, None, -1, 0, 1]]
    rows += [[True, 1.0, 2, 3, np.float64(4)], [np.nan, np.inf, -np.inf, -0.0, 5e-324]]
    rows += [[2**63, 1, 2, 3, 4.0], [10**300, 1, 2, 3, 4.0]]
    for row in rows:
        block = np.array([[np.nan if v is None else float(v) for v in row]])
        same_row(call(row), of_run(plan, block))
        same_row(call(tuple(row)), of_run(plan, block))


class Child(np.ndarray[Any, Any]):
    """A subclass, which may mean something else by everything."""


def layouts(block: Any) -> dict[str, Any]:
    """The same numbers in other layouts and dtypes."""
    padded = np.zeros((2 * len(block), 3 * WIDTH), block.dtype)
    padded[::2, ::3] = block
    raw = np.zeros(block.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(block.dtype).reshape(block.shape)
    unaligned[:] = block
    read_only = block.copy()
    read_only.flags.writeable = False
    wide = np.zeros((len(block), WIDTH + 4), block.dtype)
    wide[:, 2 : 2 + WIDTH] = block
    return {
        "strided": padded[::2, ::3],
        "rows apart": wide[:, 2 : 2 + WIDTH],
        "fortran": np.asfortranarray(block),
        "backwards": block[::-1, ::-1].copy()[::-1, ::-1],
        "rows backwards": block[::-1].copy()[::-1],
        "unaligned": unaligned,
        "read-only": read_only,
        "subclass": block.view(Child),
        "swapped": block.astype(block.dtype.newbyteorder()),
        "list": block.tolist(),
    }


def test_any_layout_gives_the_same_answers(plan: Plan) -> None:
    call, block = plan.entry(), data(plan, 9)
    want, one = of_run(plan, block), of_run(plan, block[:1])
    for name, other in layouts(block).items():
        print(name)  # noqa: T201 (shown when the test fails)
        same(call(other), want)
        same_row(call(other[0]), one)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint8", "bool"])
def test_any_dtype_gives_the_answers_of_its_own_width(plan: Plan, dtype: str) -> None:
    block = data(plan, 9).astype(dtype)
    call = plan.entry()
    same(call(block), of_run(plan, block))
    same_row(call(block[0]), of_run(plan, block[:1]))


WRONG = {
    "narrow": np.zeros((2, WIDTH - 1)),
    "wide": np.zeros((2, WIDTH + 1)),
    "narrow row": np.zeros(WIDTH - 1),
    "short list": [1.0] * (WIDTH - 1),
    "empty list": [],
    "empty array": np.zeros(0),
    "words": ["a"] * WIDTH,
    "list of a word": [1.0, 2.0, 3.0, 4.0, "a"],
    "objects": [object()] * WIDTH,
    "ragged": [[1.0] * WIDTH, [1.0]],
    "deep": np.zeros((2, WIDTH, 1)),
    "number": np.float64(1.0),
    "nothing": None,
    "no dimensions": np.array(1.0),
    "complex": np.zeros((2, WIDTH), complex),
    "dates": np.zeros((2, WIDTH), "datetime64[s]"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_data_is_an_error(wrong: str) -> None:
    call = oven.bake(scores()).entry()
    for _ in range(3):
        with pytest.raises(FlourError):
            call(WRONG[wrong])
    same_row(call(np.zeros(WIDTH)), tuple(call(np.zeros((1, WIDTH)))))


def test_an_array_of_another_type_goes_to_the_entry_of_its_own() -> None:
    plan = oven.bake(scores("float32")).wait()
    row = rng.normal(size=WIDTH)
    want = of_run(plan, row[None])
    plan.variants.baked({"x": Vector(WIDTH)}).wait()
    same_row(plan.entry()(row), want)
    typed = plan.variants.of_array(row)
    assert typed is not None
    assert type(typed.entry()).__name__ == "builtin_function_or_method"
    assert plan.variants.of_array(row.astype(np.float32)) is None
    assert plan.variants.of_array(row.tolist()) is None


@pytest.mark.parametrize(("own", "other"), [("float32", "float64"), ("float64", "float32")])
def test_the_other_width_of_floats_stays_in_machine_code(own: str, other: str) -> None:
    plan = oven.bake(classifier([1, 2, 3], own)).wait()
    typed = plan.variants.baked({"x": Vector(WIDTH, other)}).wait()
    block = rng.normal(size=(4, WIDTH))
    entry, wanted = plan.entry(), typed.run(block.astype(other))
    for _ in range(3):
        for data in (block.astype(other), block.astype(own), block.astype(other).T.copy().T):
            same = typed if data.dtype == other else plan
            for found, name in zip(entry(data), wanted, strict=True):
                np.testing.assert_array_equal(found, same.run(data)[name])
        for data in (block.astype(">f4"), (9 * block).astype("int64"), block.astype("float16")):
            for found, known in zip(entry(data), plan.run(data).values(), strict=True):
                np.testing.assert_array_equal(found, known)
    rows = block.astype(other)
    assert not entered(partial(entry, rows)) + entered(partial(entry, rows[0]))


def test_frames_are_read_as_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of frames, and of a row of one, machine code gets what a reader makes of them."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = [f"c{place}" for place in range(WIDTH)]
    frame = pd.DataFrame(rng.normal(size=(7, WIDTH)), columns=columns)
    row = record("row", {name: Scalar() for name in columns})
    for flow in (outputs(top=row.columns(columns).max()), classifier([1, 2, 3])):
        plan = oven.bake(flow).wait()
        entry, wanted = plan.entry(), plan.run(frame)
        with monkeypatch.context() as patched:
            patched.setattr("oven.plans.plan.coerce", None)  # which takes a column at a time
            for form in (frame, pl.from_pandas(frame)):
                for found, known in zip(entry(form), wanted.values(), strict=True):
                    np.testing.assert_array_equal(found, known)
            for found, known in zip(entry(frame.iloc[2]), wanted.values(), strict=True):
                np.testing.assert_array_equal(found, known[2])
            for found, known in zip(entry(frame.iloc[:1]), wanted.values(), strict=True):
                np.testing.assert_array_equal(found, known[:1])


def test_documents_in_arrays_of_another_class() -> None:
    class Others(np.ndarray[Any, Any]):
        pass

    counts = text("document").tokenize().word_ngrams(["a", "two", "word", "words"], 1, 1)
    entry = oven.bake(counts.linear([[1.0, 2.0, 3.0, 4.0]], [0.5])).wait().entry()
    documents = np.array(["word", "two words"], object)
    forms: list[Any] = [documents.view(Others), np.ma.array(documents, dtype=object)]
    for form in forms:
        np.testing.assert_array_equal(entry(form), entry(documents))


def test_plans_that_machine_code_cannot_enter() -> None:
    x = source("x", Vector(WIDTH))
    several = outputs(sum=x.sum(), also=source("y", Scalar("float64")))
    whole = outputs(same=x, sum=x.sum())
    for flow in (several, whole):
        assert type(oven.bake(flow).entry()).__name__ == "function"
    row = np.arange(float(WIDTH))
    vector, total = oven.bake(whole).entry()(row)
    assert (vector.tolist(), total) == (row.tolist(), 10.0)
    assert oven.bake(several).entry()({"x": row[None], "y": [3.0]})[1].tolist() == [3.0]


def test_where_there_are_no_entries_python_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "entry_code", lambda _: None)
    plan = oven.bake(classifier(["a", "b", "c"]))
    block = data(plan, 4)
    same(plan.entry()(block), of_run(plan, block))
    same_row(plan.entry()(block[0]), of_run(plan, block[:1]))
    same(tuple(plan.run(block).values()), of_run(plan, block))


# --- threads and lifetimes ----------------------------------------------------------------------


def test_threads_share_a_entry(plan: Plan) -> None:
    call = plan.entry()
    blocks = [data(plan, rows, seed) for seed, rows in enumerate([1, 3, 40, 5000] * 4)]
    wanted = [of_run(plan, block) for block in blocks]

    def work(start: int) -> None:
        for turn in range(60):
            place = (start + turn) % len(blocks)
            same(call(blocks[place]), wanted[place])
            same_row(call(blocks[place][0]), wanted[place])

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(work, start) for start in range(16)]:
            done.result()


def test_big_blocks_let_other_threads_run() -> None:
    plan = oven.bake(scores())
    call, block = plan.entry(), data(plan, 500_000)
    call(block)
    start, turns = threading.Event(), []

    def other() -> None:
        start.wait()
        turns.append("ran")

    thread = threading.Thread(target=other)
    thread.start()
    # While one thread keeps the lock, no other gets it before the interval is over.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        start.set()
        for _ in range(100):  # a busy machine may give the other thread no core for a while
            if not turns:
                call(block)
        assert turns == ["ran"]
    finally:
        sys.setswitchinterval(interval)
        thread.join()


def test_a_garbage_collection_inside_may_use_the_entry() -> None:
    plan = oven.bake(classifier(["a", "b", "c"]))
    call, block = plan.entry(), data(plan, 3)
    rows = [call(row) for row in block]
    inside: list[Any] = []

    def again(phase: str, _: object) -> None:
        if phase == "start" and len(inside) < 500:
            inside.append(call(block[2]))

    before = gc.get_threshold()
    gc.callbacks.append(again)
    gc.set_threshold(1)
    try:
        for _ in range(300):
            got = call(block[0])
            np.testing.assert_array_equal(got[1], rows[0][1])
            assert (got[0], got[2]) == (rows[0][0], rows[0][2])
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(again)
    assert inside
    for got in inside:
        np.testing.assert_array_equal(got[1], rows[2][1])


def counts(things: list[Any]) -> list[int]:
    """Reference counts, where objects are counted at all (some are immortal)."""
    return [sys.getrefcount(thing) for thing in things]


def test_nothing_leaks() -> None:
    plan = oven.bake(classifier(["first label", "second label", "third label"]))
    call, block = plan.entry(), data(plan, 10)
    row, items = block[0], block[0].tolist()
    wrong = [*items[:-1], "x"]
    labels = sorted({*map(str, call(block)[0]), call(row)[0]})
    things = [row, items, wrong, block, np.dtype(float), np.dtype(object), *labels, *items]
    gc.collect()  # what other tests left: its arrays count for the dtypes
    blocks = sys.getallocatedblocks()
    before = counts(things)
    for _ in range(100_000):
        call(row)
        call(items)
    for _ in range(5_000):
        call(block)
        call(block[:0])
    for _ in range(200):
        with pytest.raises(FlourError):
            call(wrong)
    gc.collect()
    assert max(np.abs(np.subtract(counts(things), before))) <= 2
    assert sys.getallocatedblocks() - blocks < 2_000


def test_a_entry_outlives_its_plan() -> None:
    call = oven.bake(classifier(["a", "b", "c"])).entry()
    gc.collect()
    noise = [np.random.default_rng(1).normal(size=100) for _ in range(1000)]
    block = np.random.default_rng(2).normal(size=(5, WIDTH))
    label, probabilities, _ = call(block)
    assert len(noise) == 1000
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert set(label) <= {"a", "b", "c"}
    assert call(block[0].astype("float32"))[0] == label[0]


def test_a_plan_that_was_run_is_freed_at_once() -> None:
    plan = oven.bake(scores())
    plan.run(np.zeros((2, WIDTH)))
    plan.run(np.zeros((2, WIDTH)))
    gc.collect()
    gc.disable()
    try:
        gone = weakref.ref(plan)
        del plan
        assert gone() is None
    finally:
        gc.enable()


def test_a_entry_is_freed() -> None:
    call = oven.bake(scores()).entry()
    gone = weakref.ref(call.__self__)  # type: ignore[attr-defined]  # a built-in has its self
    del call
    gc.collect()
    assert gone() is None
