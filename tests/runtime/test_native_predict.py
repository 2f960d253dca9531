"""It means what `Runtime._predict` means, whoever calls it how, and leaks nothing."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from types import BuiltinFunctionType
from typing import Any

import numpy as np
import pytest

import oven
from flour.data.batch import Batch, Form
from oven.entry.nearby import MOST_LINES
from oven.run.native_run import NativeRun
from runtime import Runtime
from runtime.errors import RuntimeClosed, UnknownEndpoint
from runtime.service.entry import RARE, SAMPLE
from runtime.service.version import INLINE_SECONDS
from tests.runtime.plans import WIDTH, documents, offset_of, record_flow, shift, text_flow

ROW = np.arange(float(WIDTH))
PERSON = {"age": 31, "income": 2.5, "city": "Graz"}

#: What callers send: rows, blocks, and things that are neither.
DATA: list[Any] = [
    ROW,
    ROW.astype(np.float32),
    ROW[::-1],
    np.ones((3, WIDTH)),
    np.ones((0, WIDTH)),
    np.ones((2, 2, WIDTH)),
    np.float64(3),
    ROW.tolist(),
    tuple(ROW.tolist()),
    [1, 2, None, 4],
    [np.float64(1), 2.0, 3.0, 4.0],
    [None, 1.0, 2.0, 3.0],
    ["1", "2", "3", "4"],
    [True, 1.0, 2.0, 3.0],
    [1.0, 2.0],
    [],
    (),
    [ROW.tolist(), ROW.tolist()],
    {"x": ROW},
    {"x": 1.0},
    {},
    None,
    7,
    "word001 word002 word001",
    "",
    b"word001",
    ["word001 word002", "word003"],
    [["word001"]],
    {"document": "word007"},
    PERSON,
    {**PERSON, "city": None},
    {name: PERSON[name] for name in reversed(PERSON)},
    {**PERSON, "age": np.float64(31)},
    {**PERSON, "more": 1},
    {"age": 31, "income": 2.5, "town": "Graz"},
    {"age": 31, "income": 2.5},
    {"age": "old", "income": 2.5, "city": "Graz"},
    {1: 31, "income": 2.5, "city": "Graz"},
    [31, 2.5, "Graz"],
    (None, 2.5, "Graz"),
    [PERSON, PERSON],
    {name: [value] for name, value in PERSON.items()},
]
NAMES = ["numbers", "record", "text", "numbers@1", "nobody"]


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    """A plan of each kind in service, and a gate."""
    with Runtime(executors=1) as made:
        made.register("numbers", shift(1.0))
        made.register("record", oven.bake(record_flow()))
        made.register("text", oven.bake(text_flow(3)))
        assert type(made.predict) is BuiltinFunctionType
        yield made


def outcome(call: Any, *args: Any, **more: Any) -> Any:
    """What a call answers, with types and shapes, or how it complains."""
    try:
        found = call(*args, **more)
    except Exception as error:  # noqa: BLE001 (any complaint is compared)
        return type(error), str(error)
    return [(name, type(v), np.shape(v), np.asarray(v).tolist()) for name, v in found.items()]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", range(len(DATA)))
def test_the_gate_answers_as_the_method(runtime: Runtime, name: str, place: int) -> None:
    data = DATA[place]
    wanted = outcome(Runtime._predict, runtime, name, data)
    np.testing.assert_equal(outcome(runtime.predict, name, data), wanted)


def test_a_row_may_stand_under_the_inputs_name(runtime: Runtime) -> None:
    for predict in (runtime.predict, partial(Runtime._predict, runtime)):
        assert offset_of(predict("numbers", {"x": ROW}), ROW) == 1.0


def test_arguments_by_name_and_wrong_ones_are_the_methods_own(runtime: Runtime) -> None:
    wanted = outcome(Runtime._predict, runtime, "numbers", ROW)
    assert outcome(runtime.predict, name="numbers", data=ROW) == wanted
    assert outcome(runtime.predict, "numbers", data=ROW) == wanted
    assert list(runtime.predict("numbers", ROW, outputs="top", engine="inline")) == ["top"]
    wrong: list[Any] = [(), ("numbers",), ("numbers", ROW, 3), (["numbers"], ROW), (None, ROW)]
    for args in wrong:
        with pytest.raises((TypeError, UnknownEndpoint)):
            runtime.predict(*args)
    with pytest.raises(TypeError, match="unexpected keyword"):
        runtime.predict("numbers", ROW, rows=3)  # type: ignore[call-arg]


def test_whoever_asks_for_help_gets_it(runtime: Runtime) -> None:
    method = inspect.signature(Runtime._predict)
    assert list(inspect.signature(runtime.predict).parameters) == list(method.parameters)[1:]


def test_calls_are_counted_and_some_are_timed(runtime: Runtime) -> None:
    served = runtime.endpoints.find("numbers")
    timed: list[Any] = []
    vars(runtime.direct)["_learn"] = lambda *args: timed.append(args[0])
    for slow, looks in ((True, RARE // SAMPLE), (False, 1)):
        timed.clear()
        for _ in range(RARE):
            served.entry.rest = (SAMPLE if slow else RARE) - 1
            assert offset_of(runtime.predict("numbers", ROW), ROW) == 1.0
        assert timed == [served] * looks
    assert served.counts.inline.value == 2 * RARE
    Runtime._predict(runtime, "numbers", ROW)
    assert served.counts.inline.value == 2 * RARE + 1


@pytest.mark.parametrize(("budget", "brief"), [(None, RARE), (1 << 30, SAMPLE)])
def test_the_first_calls_of_brief_code_are_not_looked_at(budget: int | None, brief: int) -> None:
    """Calls with texts are, as their code does not say what they take; all are under a budget."""
    looked: list[str] = []
    with Runtime(executors=1, memory_budget=budget) as runtime:
        vars(runtime.direct)["_learn"] = lambda version, *_: looked.append(version.name)
        runtime.register("numbers", shift(1.0))
        runtime.register("text", oven.bake(text_flow(3)))
        for name, row, first in (("numbers", ROW, brief), ("text", "word001", SAMPLE)):
            for number in range(1, first + 1):
                runtime.predict(name, row)
                assert (name in looked) == (number == first)


def test_a_call_is_answered_though_its_version_goes_meanwhile(runtime: Runtime) -> None:
    version = runtime.endpoints.find("numbers")
    version.entry.rest = SAMPLE - 1

    def gone(*_: object) -> None:
        version.entry.function = None  # as when memory is short
        runtime.unregister("numbers")

    vars(runtime.direct)["_timed"] = gone
    for _ in range(SAMPLE):
        assert offset_of(runtime.predict("numbers", ROW), ROW) == 1.0
    with pytest.raises(UnknownEndpoint):
        runtime.predict("numbers", ROW)


def test_a_call_of_another_plan_asks_for_what_it_reads_and_for_no_more(runtime: Runtime) -> None:
    version = runtime.endpoints.versions()["numbers@1"]
    plan, asked = version.plan, np.frombuffer(version.close_by, np.int64)
    assert plan is not None
    (step,) = plan.code.steps
    assert isinstance(step, NativeRun)
    for read in (*step.addresses[1:], id(version.entry), id(version.entry.function)):
        assert read - read % 64 in asked
    assert len(asked) == len({*asked.tolist()}) <= MOST_LINES
    answer = runtime.predict("numbers", ROW)
    version.close_by = np.array([1, -64, 2**62], np.int64).tobytes()  # nothing is there to be read
    runtime.predict("text", "word001")
    np.testing.assert_equal(runtime.predict("numbers", ROW), answer)


def test_it_follows_what_is_registered(runtime: Runtime) -> None:
    gate = runtime.predict
    runtime.register("numbers", shift(2.0))
    assert runtime.predict is gate
    assert offset_of(gate("numbers", ROW), ROW) == 2.0
    assert offset_of(gate("numbers@1", ROW), ROW) == 1.0
    runtime.switch("numbers", "1")
    assert offset_of(gate("numbers", ROW), ROW) == 1.0
    runtime.unregister("numbers")
    with pytest.raises(UnknownEndpoint):
        gate("numbers", ROW)
    runtime.close()
    for call in (gate, runtime.predict):
        with pytest.raises(RuntimeClosed):
            call("text", "word001")


def test_versions_come_and_go_under_many_callers(runtime: Runtime) -> None:
    stop, wrong = threading.Event(), []

    def ask() -> None:
        while not stop.is_set():
            found = offset_of(runtime.predict("numbers", ROW), ROW)
            if found not in (1.0, 5.0):
                wrong.append(found)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for _ in range(60):
        runtime.register("numbers", shift(5.0), "next")
        runtime.switch("numbers", "1")
        runtime.unregister("numbers", "next")
    stop.set()
    for asker in askers:
        asker.join()
    assert wrong == []


def test_nothing_leaks(runtime: Runtime) -> None:
    rows: list[Any] = [ROW, ROW.tolist(), np.ones((2, WIDTH)), ["no", 1.0, 2.0, 3.0], {"x": ROW}]
    calls = [("numbers", row) for row in rows]
    calls += [("record", PERSON), ("record", {**PERSON, "more": 1}), ("text", "word001")]
    served = runtime.endpoints.find("numbers")
    watched = [
        *(
            runtime.predict,
            served,
            served.entry.function,
            served.outputs,
            *served.outputs,
            *rows,
            PERSON,
        ),
        *("numbers", *PERSON, None, True),
    ]

    def ask() -> None:
        for name, row in calls:
            outcome(runtime.predict, name, row)

    for _ in range(RARE):  # what is learnt of calls stays
        ask()
    gc.collect()
    before = [sys.getrefcount(thing) for thing in watched]
    blocks = sys.getallocatedblocks()
    for _ in range(8 * RARE):
        ask()
    gc.collect()
    after = [sys.getrefcount(thing) for thing in watched]
    assert max(abs(one - other) for one, other in zip(before, after, strict=True)) < 20
    assert sys.getallocatedblocks() - blocks < 4 * RARE


def test_a_runtime_that_nobody_has_any_more_goes() -> None:
    made = Runtime(executors=1)
    made.register("numbers", shift(1.0))
    made.predict("numbers", ROW)
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None


def test_a_subclass_has_its_own_way() -> None:
    class Mine(Runtime):
        """Answers with something else."""

        def predict(self, name: str, data: Any, **more: Any) -> dict[str, Any]:
            return {"asked": name, **super().predict(name, data, **more)}

    with Mine(executors=1) as mine:
        mine.register("numbers", shift(1.0))
        assert mine.predict("numbers", ROW)["asked"] == "numbers"


def test_how_many_rows_take_the_entry_is_learnt(runtime: Runtime) -> None:
    version = runtime.endpoints.find("numbers")
    entry, least = version.entry, version.entry.inline_rows

    def learn(rows: int, seconds: float) -> int:
        version.learn(Batch(Form.ARRAYS, None, rows, single=False), seconds)
        return entry.inline_rows

    learnt = learn(3 * least, INLINE_SECONDS / 2)
    assert learnt == pytest.approx(6 * least, abs=1)
    assert learn(1, 1e-6) == learnt, "it says nothing of so many"
    assert learn(learnt, INLINE_SECONDS / 5) == 4 * learnt, "nor this of five times as many"
    assert learn(4 * learnt, 1.0) == least


def test_how_many_documents_take_the_entry_is_learnt_by_their_length(runtime: Runtime) -> None:
    version = runtime.endpoints.find("text")
    entry, read = version.entry, version.reader.read

    def learn(data: object, seconds: float) -> int:
        version.learn(read(data), seconds)
        return entry.inline_characters

    assert learn([7, "word"], 1e-6) == 0
    assert entry.inline_rows == 0
    assert learn("x" * 68, INLINE_SECONDS / 10) == 400, "four times as much as was seen"
    assert learn(["x" * 268], INLINE_SECONDS / 10) == 1200
    assert learn("x" * 18, 1e-3) == 1200, "it says nothing of so much"
    assert learn(["x" * 168] * 4, 2 * INLINE_SECONDS) == 400
    for data, takes in (
        (["x" * 168, "x" * 168], True),
        (["x" * 168, "x" * 169], False),
        ([""] * 13, False),
        (["x", 7], False),
        ([], False),
        (("x",), False),
    ):
        assert entry.takes(read(data)) is takes
    numbers = runtime.endpoints.find("numbers")
    assert not numbers.entry.takes(numbers.reader.read([["x"]]))


def test_few_documents_take_the_shortest_way(runtime: Runtime) -> None:
    """More go where it is decided; both answer the same."""
    text = runtime.endpoints.find("text")
    text.entry.inline_characters = 10_000
    before = text.counts.inline.value
    for count in (1, 3, 100, 1000):
        block = [f"word{n % 7:03} word002" for n in range(count)]
        wanted = outcome(Runtime._predict, runtime, "text", block, engine="inline")
        text.learned.decision = None
        assert outcome(runtime.predict, "text", block) == wanted
        assert (text.learned.decision is None) is (count <= 100)
    assert text.counts.inline.value >= before + 6
    # What is among documents and is none is refused with its place, as ever.
    wanted = outcome(Runtime._predict, runtime, "text", ["word001", 7], engine="inline")
    assert outcome(runtime.predict, "text", ["word001", 7]) == wanted


def test_blocks_of_documents_go_in_by_the_plans_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code lays documents out; coercing them takes longer than a small model's answer."""
    plan = oven.bake(text_flow(1))
    texts: list[Any] = documents(5)
    want = plan.run(tuple(texts))["score"]
    with monkeypatch.context() as no:
        no.setattr("oven.plans.plan.coerce", lambda *_: pytest.fail("not by the entry"))
        for block in (texts, np.array(texts, object)):
            np.testing.assert_array_equal(plan.run(block)["score"], want)
    for odd in ([*texts, None], [texts[0], 7], [texts[0].encode()], []):
        np.testing.assert_equal(outcome(plan.run, odd), outcome(plan.run, tuple(odd)))
