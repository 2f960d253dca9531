"""Blocks that a caller and helpers compute in native code: each row once, whoever comes when."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import flour
import oven
from flour.core.errors import InputError
from oven.plans.execution import are_shared_natively
from oven.plans.plan import Plan
from oven.run.helpers import Division, Told, desk
from oven.run.native_run import OutOfTime
from runtime import Runtime
from scheduler import DeadlineExceeded
from tests.runtime.plans import WIDTH, offset_of, shift

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 6))
Y = np.array(["no", "yes"])[(X[:, 0] > 0) * 1]
WORDS = np.array([f"w{n}" for n in range(90)] + ["ä", "日本"])
DOCUMENTS = [" ".join(RNG.choice(WORDS, RNG.integers(0, 40))) for _ in range(500)]
#: Numbers with labels, texts, stored numbers of sparse rows, columns by name with words.
MODELS: dict[str, tuple[Any, Any]] = {
    "trees": (RandomForestClassifier(20, random_state=0).fit(X, Y), X),
    "texts": (make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(DOCUMENTS, Y), DOCUMENTS),
    "sparse": (LogisticRegression().fit(X, Y), scipy.sparse.csr_matrix(np.where(X > 0, X, 0))),
}


@pytest.fixture(autouse=True, scope="module")
def helpers() -> Iterator[None]:
    """Three helpers, on however few cores; nobody else of this module ends them."""
    assert are_shared_natively()
    user = _User()
    assert desk.start(3, 8, user) == 3
    yield
    assert desk.stop(user)


class _User:
    """Somebody who wants helpers."""


def together(plan: Plan, data: Any, *division: Any) -> tuple[dict[str, Any], Told]:
    """The answers of caller and helpers, and what they took."""
    work = plan.begin(data)
    told = work.together(Division(*division))
    assert told is not None, "this can be shared"
    return work.finish(), told


@contextmanager
def no_helpers() -> Iterator[None]:
    """The cores are all taken by callers."""
    desk.callers[0] = 8
    yield
    desk.callers[0] = 0


def same(made: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same bits in the same types."""
    assert made.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(made[name], value, strict=True)


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 500])
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_the_answers_are_those_of_one_thread(name: str, count: int, rows: int) -> None:
    model, data = MODELS[name]
    plan = oven.bake(flour.from_sklearn(model), background=False)
    expected = plan.run(data[:rows])
    for least, most in ((1, 1), (1, 10**6), (7, 50), (rows, rows)):
        for _ in range(5):
            made, told = together(plan, data[:rows], count, least, most)
            same(made, expected)
            assert 1 <= told.ranges <= rows
            assert told.came <= count
            assert told.work > 0


@settings(deadline=None)
@given(*[st.integers(1, 2000)] * 3, st.integers(0, 3))
def test_each_row_is_computed_once(rows: int, least: int, most: int, count: int) -> None:
    data = np.arange(float(rows * WIDTH)).reshape(rows, WIDTH)
    made, told = together(shift(3.0), data, count, min(least, most), most)
    assert offset_of(made, data) == 3.0
    assert told.ranges >= -(-rows // (most + 63))


def test_rows_without_gaps_and_with_are_alike() -> None:
    data = np.arange(4000.0).reshape(1000, WIDTH)
    for view in (data[::3], data[::-1], np.repeat(data, 2, axis=1)[:, ::2], data.astype(">f8")):
        assert offset_of(together(shift(1.0), view, 2, 16, 100)[0], view) == 1.0


def test_frames_and_lists_are_shared_too() -> None:
    pandas = pytest.importorskip("pandas")
    names = [f"c{n}" for n in range(6)]
    frame = pandas.DataFrame(X, columns=names)
    plan = oven.bake(flour.from_sklearn(LogisticRegression().fit(frame, Y)), background=False)
    expected = plan.run(frame)
    for data in (frame, {name: X[:, n] for n, name in enumerate(names)}):
        same(together(plan, data, 2, 16, 100)[0], expected)


def test_a_refused_row_is_told_as_by_one_thread() -> None:
    model, data = LogisticRegression().fit(X, Y), X.copy()
    data[321, 2] = np.nan
    plan = oven.bake(flour.from_sklearn(model), background=False)
    with pytest.raises(InputError) as alone:
        plan.run(data)
    with pytest.raises(InputError) as shared:
        together(plan, data, 2, 16, 64)
    assert str(shared.value) == str(alone.value)
    same(together(plan, X, 2, 16, 64)[0], plan.run(X))


def test_what_has_an_output_of_stored_numbers_is_not_shared() -> None:
    plan = oven.bake(flour.from_sklearn(TfidfVectorizer().fit(DOCUMENTS)), background=False)
    assert plan.begin(DOCUMENTS).together(Division(1, 1, 100)) is None
    with Runtime(executors=1) as runtime:
        runtime.register("a", plan)
        made = runtime.predict("a", DOCUMENTS)
    expected = plan.run(DOCUMENTS)
    for name, value in expected.items():
        assert (made[name] != value).nnz == 0


def test_it_ends_at_its_deadline() -> None:
    data = np.zeros((5000, WIDTH))
    with pytest.raises(OutOfTime) as late:
        together(shift(1.0), data, 2, 1, 1, time.monotonic())
    assert late.value.rows == 0
    made, _ = together(shift(1.0), data, 2, 1, 1, time.monotonic() + 3600)
    assert offset_of(made, data) == 1.0
    made, _ = together(shift(1.0), data, 2, 1, 1, float("inf"))
    assert offset_of(made, data) == 1.0


def test_a_call_that_is_late_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.service.policy.CORES", 2)
    with Runtime(executors=2) as runtime:
        runtime.register("a", flour.from_sklearn(MODELS["trees"][0]))
        many = np.tile(X, (2000, 1))
        with pytest.raises(DeadlineExceeded) as late:
            runtime.predict("a", many, timeout=0.005)
        assert late.value.hint
        assert len(runtime.predict("a", X, timeout=60)["label"]) == len(X)


def test_helpers_leave_callers_their_cores() -> None:
    """They may come, but take no rows: the callers have filled the cores."""
    data = np.zeros((100_000, WIDTH))
    with no_helpers():
        made, told = together(shift(2.0), data, 3, 1000, 1000)
    assert offset_of(made, data) == 2.0
    assert told.work <= 1.5 * told.elapsed


def test_callers_share_helpers() -> None:
    plans = [shift(float(n)) for n in range(4)]
    wrong: list[object] = []

    def ask(number: int) -> None:
        data = np.arange(4000.0).reshape(1000, WIDTH) * number
        for _ in range(100):
            made, _ = together(plans[number], data, 3, 8, 64)
            if offset_of(made, data) != number:
                wrong.append(made)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_helpers_may_be_stopped_and_started_meanwhile() -> None:
    ended = threading.Event()
    data = np.arange(40_000.0).reshape(10_000, WIDTH)

    def ask() -> None:
        while not ended.is_set():
            assert offset_of(together(shift(5.0), data, 3, 64, 1000)[0], data) == 5.0

    problems: list[BaseException] = []

    def asking() -> None:
        try:
            ask()
        except BaseException as problem:  # noqa: BLE001 (it is raised below)
            problems.append(problem)

    threads = [threading.Thread(target=asking) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        assert desk.stop()
        assert desk.helpers == desk.memory_bytes == 0
        assert desk.start(3, 8, desk) == 3
    ended.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert desk.memory_bytes >= 0


def test_helpers_stay_while_somebody_wants_them() -> None:
    first, second = _User(), _User()
    desk.start(1, 8, first)
    desk.start(1, 8, second)
    assert desk.stop(first)
    assert desk.helpers == 3
    assert desk.stop(second)
    assert desk.helpers == 3, "the fixture wants them"


def test_where_no_thread_can_be_started_callers_compute_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def refuse(thread: object) -> None:
        asked.append(thread)
        raise RuntimeError("can't start new thread")

    assert desk.stop()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(3):
        assert desk.start(2, 8, desk) == 0
    assert len(asked) == 1, "it is not tried with every call"
    data = np.zeros((1000, WIDTH))
    assert offset_of(together(shift(1.0), data, 2, 1, 100)[0], data) == 1.0
    monkeypatch.undo()
    assert desk.stop()
    assert desk.start(3, 8, desk) == 3


def test_where_the_system_has_no_semaphores_it_is_shared_by_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(desk), "works", False)
    assert shift(1.0).begin(np.zeros((9, WIDTH))).together(Division(1, 1, 3)) is None
    with Runtime(executors=2) as runtime:
        runtime.register("a", shift(1.0))
        data = np.zeros((100_000, WIDTH))
        for _ in range(5):
            assert offset_of(runtime.predict("a", data), data) == 1.0


PROGRAM = """
import os, sys, warnings
import numpy as np
from oven.run.helpers import Division, desk
from tests.runtime.plans import offset_of, shift

warnings.simplefilter("ignore")  # threads and fork: nobody computes meanwhile
data, plan = np.arange(40_000.0).reshape(10_000, 4), shift(2.0)

def ask():
    assert desk.start(2, 8, desk) == 2
    for _ in range(20):
        work = plan.begin(data)
        assert work.together(Division(2, 8, 64)) is not None
        assert offset_of(work.finish(), data) == 2.0

plan.wait()
ask()
child = os.fork()
if not child:
    assert desk.helpers == 0
    ask()
    sys.exit(7)  # by the way that joins threads
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
ask()
print("well")  # and ends with helpers that wait
"""


def test_a_forked_process_has_helpers_of_its_own_and_both_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
