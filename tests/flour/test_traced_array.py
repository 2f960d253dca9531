"""Numbers that remember how they were computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from flour.tracing.replay import Called
from flour.tracing.traced_array import ArrayTrace, NoFormulaError, TracedArray, noted
from objectstore import Blob

ONE = np.array([[1.0, -2.0], [0.5, 4.0]], np.float32)
OTHER = np.array([[3.0, 0.25], [-8.0, 1.0]], np.float32)

#: Ways to compute with an array that ask nothing.
COMPUTING: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: (2 * x + 1) / np.float32(3) - np.ones(2, np.float32),
    "product": lambda x: x @ x.T,
    "a plain array first": lambda x: np.eye(2, dtype=np.float32) @ x,
    "functions": lambda x: np.sqrt(np.abs(x)) + np.square(x).sum(axis=1),
    "dtypes": lambda x: x.astype(np.float64).reshape(-1),
    "lists": lambda x: np.concatenate([x, np.zeros((1, 2), np.float32), x]),
    "places": lambda x: x[:, [1, 0]][0],
    "a part": lambda x: np.tile(x[0], 3),
    "written to": lambda x: _written(x.copy()),
    "written through a view": lambda x: _through_a_view(x.copy()),
    "equal twice": lambda x: (x + 1) * (x + 1),
    "masked": lambda x: np.where(x > 0, x, 0),
}


def _written(x: Any) -> Any:
    x[:, 0] = x[:, 1] * 2
    return x


def _through_a_view(x: Any) -> Any:
    before, view = x + 1, x[0]
    x[0] = view * 3
    return before + (x + 1) + view


def recorded(
    function: Callable[[Any], Any], array: NDArray[Any]
) -> Callable[[NDArray[Any]], NDArray[Any] | None]:
    """The function of an array, as it was written down for this one."""
    trace = ArrayTrace()
    made = function(trace.leaf(array.copy()))
    again = trace.recorded([made])

    def call(other: NDArray[Any]) -> NDArray[Any] | None:
        found = again([other.copy()])
        return None if found is None else found[0]

    return call


@pytest.mark.parametrize("name", COMPUTING)
def test_what_asks_nothing_is_made_again(name: str) -> None:
    function = COMPUTING[name]
    again = recorded(function, ONE)
    for array in (ONE, OTHER, np.zeros_like(ONE), np.full_like(ONE, np.nan)):
        with np.errstate(all="ignore"):
            want = function(array)
        got = again(array)
        assert got is not None
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.tobytes() == want.tobytes()


def _into_plain(x: Any) -> Any:
    made = np.zeros((2, 2), np.float32)
    made[:] = x
    return x + made


#: Ways to look at values; what they answer for ONE and OTHER differs.
ASKING: dict[str, Callable[[Any], Any]] = {
    "truth": lambda x: x + 1 if np.all(x[0] > -3) and x[0, 0] < 2 else x,
    "a number": lambda x: x * float(x[0, 0]),
    "a whole number": lambda x: x * int(x[0, 0]),
    "a place": lambda x: x[int(x[0, 0] > 2)],
    "a list": lambda x: x * x[0].tolist()[0],
    "an item": lambda x: x * x[0, 0].item(),
    "a plain array": lambda x: x + np.asarray(x),
    "going through it": lambda x: x * next(iter(x[0])),
    "written into a plain array": _into_plain,
    "equal arrays": lambda x: x if np.array_equal(x[0], [1, -2]) else x * 2,
    "as many as": lambda x: x.reshape(-1)[np.flatnonzero(x.reshape(-1) > 0.75)],
    "how many": lambda x: x * len(np.flatnonzero(x.reshape(-1) > 0.3)),
    "how many there are then": lambda x: x * (np.flatnonzero(x.reshape(-1) > 0.3) + 1).size,
    "max": lambda x: x * max(x[0, 1], x[1, 0]),
}


@pytest.mark.parametrize("name", ASKING)
def test_what_is_asked_is_asked_again(name: str) -> None:
    """The same numbers, the same answer; of others, none rather than a wrong one."""
    function = ASKING[name]
    again = recorded(function, ONE)
    same = again(ONE)
    assert same is not None
    assert same.tobytes() == function(ONE).tobytes()
    other = again(OTHER)
    if name != "as many as":
        assert other is None
    else:  # two are positive in both, so that the shape is the same
        assert other is None or other.tobytes() == function(OTHER).tobytes()


NUMBERS = st.lists(
    st.sampled_from([0.0, -0.0, 1.0, 2.0, -3.0, 1e30, float("nan"), float("inf")]),
    min_size=4,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*COMPUTING, *ASKING]), NUMBERS, NUMBERS)
def test_never_another_answer(name: str, first: list[float], second: list[float]) -> None:
    function = (COMPUTING | ASKING)[name]
    one, other = (np.array(x, np.float32).reshape(2, 2) for x in (first, second))
    with np.errstate(all="ignore"):
        try:
            again = recorded(function, one)
        except (ValueError, OverflowError):  # no whole number, as of an array
            return
        got = again(other)
        if got is not None:
            assert got.tobytes() == function(other).tobytes()


#: What has no place in a trace.
REFUSED: dict[str, Callable[[Any], Any]] = {
    "in place": lambda x: x.__iadd__(1),
    "an attribute that is not known": lambda x: x.ctypes,
    "memory": lambda x: x.view(np.int32),
    "out": lambda x: np.add(x, 1, out=np.zeros((2, 2), np.float32)),
    "split": lambda x: np.split(x, 2),
    "by name": lambda x: np.sum(a=x, where=x > 0),
    "of another trace": lambda x: x + ArrayTrace().leaf(ONE),
    "a list of places": lambda x: x[[x[0, 0] > 0]],
    "what changes a parameter": lambda x: Blob.of(x).array.__setitem__(0, 1.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_down_breaks_the_trace(name: str) -> None:
    trace = ArrayTrace()
    with pytest.raises(NoFormulaError):
        REFUSED[name](trace.leaf(ONE.copy()))


def test_a_broken_trace_says_so() -> None:
    trace = ArrayTrace()
    item = trace.leaf(ONE.copy())
    assert not trace.broken
    with pytest.raises(NoFormulaError):
        item.tobytes()
    assert trace.broken


def test_names_that_arrays_do_not_have_are_none() -> None:
    item = ArrayTrace().leaf(ONE.copy())
    assert not hasattr(item, "toarray")
    assert not hasattr(item, "__array_interface__")
    with pytest.raises(TypeError):
        hash(item)


def test_formulas_are_parameters() -> None:
    """Of one formula there is one blob; others of equal content are the same while they are."""
    trace = ArrayTrace()
    item = trace.leaf(ONE.copy())
    first, again = Blob.of(item), Blob.of(item, "float32")
    assert first is again
    wanted: Any = first.array
    assert type(wanted) is TracedArray
    assert Blob.of(item * 2) is not first
    assert Blob.of(item * 1) is first
    made = trace.recorded([wanted])
    assert made([ONE.copy()]) is not None
    assert made([OTHER.copy()]) is not None
    assert made([np.zeros_like(ONE)]) is None, "twice zero is zero, so these would be one parameter"


def test_parameters_of_two_traces_are_never_one() -> None:
    blobs = [Blob.of(ArrayTrace().leaf(ONE.copy())) for _ in range(2)]
    assert blobs[0] != blobs[1] != Blob.of(ONE)


def test_other_shapes_and_dtypes_are_other_numbers() -> None:
    again = recorded(lambda x: x + 1, ONE)
    assert again(ONE.reshape(-1)) is None
    assert again(ONE.astype(np.float64)) is None


def test_equal_steps_are_made_once_and_unread_ones_never() -> None:
    trace = ArrayTrace()
    item = trace.leaf(ONE.copy())
    _ = np.sqrt(np.abs(item))
    found = trace.recorded([(item + 1) * (item + 1)])
    assert len(found) == 2


ROW = np.array([3, 1, 2], np.int64)


def test_rows_of_any_length_are_made_again() -> None:
    trace = ArrayTrace()
    row = trace.leaf(ROW, free=True)
    sort = Called(np.sort, "sort", any_length=True, free=True)
    least = Called(np.min, "least", any_length=True)
    again = trace.recorded([noted(sort, row), noted(least, row)])
    for other in (ROW, np.array([5, 4, 9, 8]), np.array([7])):
        found = again([other])
        assert found is not None
        assert found[0].tolist() == sorted(other.tolist())
        assert found[1] == min(other)
    assert again([np.array([], np.int64)]) is None, "there is no least"
    assert again([ROW.reshape(1, 3)]) is None
    assert noted(sort, ROW).tolist() == [1, 2, 3], "of an array it is what it always is"


@pytest.mark.parametrize(
    "ask",
    [len, np.size, lambda row: row.shape, lambda row: row.nbytes, lambda row: row + 1, np.sum],
    ids=["len", "size", "shape", "nbytes", "plus", "sum"],
)
def test_rows_of_any_length_have_none(ask: Callable[[Any], object]) -> None:
    trace = ArrayTrace()
    with pytest.raises(NoFormulaError):
        ask(trace.leaf(ROW, free=True))
    assert trace.broken


def test_rows_of_any_length_are_parameters() -> None:
    trace = ArrayTrace()
    row, other = trace.leaf(ROW, free=True), trace.leaf(ROW + 1, free=True)
    assert Blob.of(row) is Blob.of(row)
    assert Blob.of(row) is not Blob.of(other)
    again = trace.recorded([Blob.of(row).array, Blob.of(other).array])  # type: ignore[list-item]
    assert again([ROW[:2], ROW]) is not None
    assert again([ROW, ROW]) is None, "these would be one parameter"


def test_what_models_have_in_common_is_made_once() -> None:
    trace, made = ArrayTrace(), list[int]()

    def noting(row: NDArray[Any]) -> NDArray[Any]:
        made.append(len(row))
        return np.sort(row)

    row = trace.leaf(ROW, free=True, common=True)
    item = trace.leaf(ONE.copy())
    sort = Called(noting, "sort", any_length=True, free=True)
    answer = Called(np.min, "least", any_length=True)
    assert float(noted(answer, row)) == 1.0
    again = trace.recorded([noted(sort, row), item * 2])
    made.clear()
    same = np.array([1, 5, 4, 9])
    for _ in range(3):
        found = again([same, OTHER])
        assert found is not None
        assert [each.tolist() for each in found] == [[1, 4, 5, 9], (OTHER * 2).tolist()]
    assert made == [4]
    for _ in range(2):
        assert again([same + 1, OTHER]) is None, "another least one"
    assert again([same, OTHER]) is not None
    assert made == [4]
