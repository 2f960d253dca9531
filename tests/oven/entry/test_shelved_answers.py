"""An answer for few rows that nobody has any more is answered with again; others are left alone."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flour
import oven
from oven.entry.interpreter import object_layout

pytestmark = pytest.mark.skipif(object_layout() is None, reason="this interpreter has no entries")

Entry = Callable[[Any], tuple[Any, ...]]
_ROW, _OTHER = np.array([[1.0, 2.0]]), np.array([[3.0, 5.0]])


@pytest.fixture
def entry() -> Entry:
    """An entry with an answer of several numbers a row, and one of one."""
    x = flour.vector("x", 2)
    plan = oven.bake(flour.outputs(many=x.multiply([2.0, 10.0]), one=x.linear([[1.0, 1.0]], [0.5])))
    return plan.entry()


def _where(answer: Any) -> int:
    return int(answer.ctypes.data)


def test_an_answer_that_nobody_has_is_answered_with_again(entry: Entry) -> None:
    first = id(entry(_ROW)[0])
    again = entry(_OTHER)
    assert id(again[0]) == first
    assert again[0].tolist() == [[6.0, 50.0]]


@pytest.mark.filterwarnings("ignore:Setting the strides:DeprecationWarning")
@pytest.mark.parametrize("rows", [2, 3, 32])
def test_blocks_of_few_rows(entry: Entry, rows: int) -> None:
    first = id(entry(np.ones((rows, 2)))[0])
    block = np.arange(2.0 * rows).reshape(-1, 2)
    again = entry(block)
    assert id(again[0]) == first
    kept = again[0]
    assert kept.tolist() == (block * [2.0, 10.0]).tolist()
    assert id(entry(np.ones((rows, 2)))[0]) != first
    assert kept.tolist() == (block * [2.0, 10.0]).tolist()
    _where(entry(np.ones((rows, 2)))[0])
    lying = entry(np.ones((rows, 2)))[0]
    lying.strides = (8, 8 * rows)
    del lying
    other = entry(block)[0]
    assert other.flags.c_contiguous
    assert other.tolist() == (block * [2.0, 10.0]).tolist()
    assert len(entry(np.ones((33, 2)))[0]) == 33


def test_labels_that_were_taken_out_are_put_back() -> None:
    x = flour.vector("x", 2)
    plan = oven.bake(x.arg_max().take(["no", "yes"]))
    call, block = plan.entry(), np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 5.0]])
    for changed in (None, 7, "maybe"):
        answer = call(block)[0]
        answer[1] = changed
        del answer
        assert call(block)[0].tolist() == ["yes", "no", "yes"]


def test_answers_that_are_kept_stay_as_they_are(entry: Entry) -> None:
    kept = [entry(np.array([[float(k), 1.0]])) for k in range(20)]
    assert [answer[0].tolist() for answer in kept] == [[[2.0 * k, 10.0]] for k in range(20)]
    assert [answer[1].tolist() for answer in kept] == [[[k + 1.5]] for k in range(20)]


@pytest.mark.parametrize(
    "hold",
    [
        lambda answer: answer,
        lambda answer: answer[0],
        lambda answer: answer.reshape(-1)[:1],
        memoryview,
        np.asarray,
        np.from_dlpack,
        iter,
    ],
    ids=["array", "row", "view", "buffer", "same", "dlpack", "iterator"],
)
def test_whoever_holds_a_part_of_an_answer_has_it(entry: Entry, hold: Callable[[Any], Any]) -> None:
    held = hold(entry(_ROW)[0])
    for _ in range(3):
        assert entry(_OTHER)[0].tolist() == [[6.0, 50.0]]
    shown = next(held) if hasattr(held, "__next__") else held
    assert np.asarray(shown).reshape(-1)[0] == 2.0


def _shape(answer: Any) -> None:
    answer.shape = (2, 1)


def _flat(answer: Any) -> None:
    answer.shape = (2,)


def _fixed(answer: Any) -> None:
    answer.flags.writeable = False


def _other(answer: Any) -> None:
    answer.dtype = np.int64


def _order(answer: Any) -> None:
    answer.byteswap(inplace=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("change", [_shape, _flat, _fixed, _other, _order])
def test_a_changed_answer_changes_no_other(entry: Entry, change: Callable[[Any], None]) -> None:
    for _ in range(3):
        answer = entry(_ROW)[0]
        assert answer.tolist() == [[2.0, 20.0]]
        assert (answer.dtype, answer.flags.writeable) == (np.float64, True)
        change(answer)
        del answer


def test_who_waits_for_the_end_of_an_answer_hears_of_it(entry: Entry) -> None:
    ends: list[int] = []
    answer = entry(_ROW)[0]
    seen = weakref.ref(answer, lambda _: ends.append(1))
    del answer
    assert entry(_OTHER)[0].tolist() == [[6.0, 50.0]]
    assert seen() is None
    assert ends == [1]


def test_whoever_asks_when_an_answer_ends_gets_one_of_its_own(entry: Entry) -> None:
    nested: list[Any] = []
    answer = entry(_ROW)[0]
    seen = weakref.ref(answer, lambda _: nested.append(entry(_ROW)))
    del answer
    assert entry(_OTHER)[0].tolist() == [[6.0, 50.0]]
    assert seen() is None
    assert nested[0][0].tolist() == [[2.0, 20.0]]


def test_a_entry_that_goes_takes_its_shelf_along() -> None:
    x = flour.vector("x", 2)
    entry = oven.bake(flour.outputs(y=x.multiply([2.0, 10.0]))).entry()
    entry(_ROW)
    (item,) = next(part for part in entry.__self__.kept if isinstance(part, list))  # type: ignore[attr-defined]  # a built-in has its self
    gone = weakref.ref(item)
    del item, entry
    assert gone() is None


def test_blocks_and_wide_rows_are_nobody_s(entry: Entry) -> None:
    first = entry(np.vstack([_ROW, _OTHER]))[0]
    where = _where(first)
    second = entry(np.vstack([_OTHER, _ROW]))[0]
    assert _where(second) != where
    wide = flour.vector("x", 65)
    call = oven.bake(flour.outputs(y=wide.multiply(np.arange(65.0)))).entry()
    call(np.ones((1, 65)))
    assert not any(isinstance(item, np.ndarray) for item in _shelf(call))


def _shelf(entry: Any) -> list[Any]:
    found = [part for part in entry.__self__.kept if isinstance(part, list)]
    assert len(found) == 1
    return list(found[0])


def test_threads_get_answers_of_their_own(entry: Entry) -> None:
    wrong: list[Any] = []

    def ask(number: int) -> None:
        for k in range(3000):
            row = np.array([[float(number), float(k)]])
            answer, other = entry(row)
            if answer.tolist() != [[2.0 * number, 10.0 * k]] or other[0, 0] != number + k + 0.5:
                wrong.append((number, k))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_labels_are_answered_with_again_too() -> None:
    x = flour.vector("x", 2)
    names = x.arg_max().take(["left", "right"])
    entry = oven.bake(flour.outputs(y=names)).entry()
    for row, want in [([[1.0, 2.0]], "right"), ([[2.0, 1.0]], "left")] * 3:
        assert entry(np.array(row))[0].tolist() == [want]


class _Asks:
    """What calls somebody when nobody has it any more."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def __del__(self) -> None:
        self._call()


def test_what_was_put_among_labels_asks_for_rows_of_its_own() -> None:
    """Its end comes before memory is in use that all entries share, not while labels are filled."""

    def row(names: str) -> Any:
        return flour.record("row", {name: flour.Scalar("float64") for name in names}).columns(names)

    two, three = row("ab"), row("abc")
    labels = {"y": two.arg_max().take(["left", "right"])}
    labels["z"] = two.multiply([-1.0, -1.0]).arg_max().take(["left", "right"])
    entry = oven.bake(flour.outputs(**labels)).entry()
    other = oven.bake(
        flour.outputs(y=three.multiply([3.0, 1.0, 2.0]), z=three.multiply([3.0, 7.0, 2.0]))
    ).entry()
    for _ in range(3):
        first, second = entry([{"a": 1.0, "b": 2.0}])
        assert (first.tolist(), second.tolist()) == (["right"], ["left"])
        for answer in (first, second):
            answer[0] = _Asks(lambda: other([{"a": 9.0, "b": 8.0, "c": 7.0}] * 2))
        del first, second, answer


def test_a_list_that_gets_shorter_when_an_answer_ends_is_read_as_it_is() -> None:
    x = flour.vector("x", 2)
    entry = oven.bake(flour.outputs(y=x.multiply([2.0, 10.0]))).entry()
    row = [1.0, 2.0]
    answer = entry(row)[0]
    seen = weakref.ref(answer, lambda _: row.pop())
    del answer
    with pytest.raises(flour.FlourError):
        entry(row)
    assert seen() is None


def test_rows_by_name_never_leave_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the first one, for which there is no answer yet, nor one while others are kept."""
    kinds = {name: flour.Scalar("float64") for name in ("a", "b")}
    row = flour.record("row", kinds).columns(["a", "b"])
    plan = oven.bake(flour.outputs(many=row.multiply([2.0, 10.0])))
    monkeypatch.setattr("oven.plans.plan.Plan.answer", lambda *_: pytest.fail("the way around"))
    entry = plan.entry()
    kept = [entry({"a": float(k), "b": 1.0})[0].tolist() for k in range(3)]
    kept += [answer.tolist() for answer in [entry({"a": 3.0, "b": 1.0})[0] for _ in range(3)]]
    assert kept == [[2.0 * min(k, 3), 10.0] for k in range(6)]
