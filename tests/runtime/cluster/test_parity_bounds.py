"""Every query of a front end ends: with its answer or an error, within its time, and alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import flour
import oven
from flour.core.errors import InputError
from runtime.cluster.parity import Answer, Coded, Endpoint, Hedged, ParityCode
from runtime.cluster.parity.code import Rows
from runtime.errors import ClusterError, RefusedRows
from tests.runtime.cluster.virtual_time import run

CONSTANT = 3.0
PLAN = oven.bake(flour.vector("x", 2).linear([[2.0, 1.0]], [CONSTANT]).named("y"))
ROWS = np.array([[1.0, 2.0]])


async def good(rows: Rows) -> Rows:
    await asyncio.sleep(0.001)
    if not np.isfinite(rows).all():
        raise InputError("the model takes no NaN")
    return np.asarray(PLAN.run(rows)["y"])


async def lost(_rows: Rows) -> Rows:
    await asyncio.sleep(0.001)
    raise ConnectionError("the replica has gone")


async def silent(_rows: Rows) -> Rows:
    await asyncio.sleep(1e9)
    raise AssertionError


async def stubborn(_rows: Rows) -> Rows:
    """Does not end when it is told to."""
    for _ in range(5):
        try:
            await asyncio.sleep(40)
        except asyncio.CancelledError:
            continue
    return np.zeros((1, 1))


def refused_at_once(_rows: Rows) -> Any:
    raise ConnectionError("the replica has gone")


def coded(replicas: list[Endpoint], parity: Endpoint, *, kind: str, **more: Any) -> Coded:
    if kind == "affine":
        return Coded(replicas, [[parity]], ParityCode(2), constant=CONSTANT, timeout=5.0, **more)
    code = ParityCode(2, encoder="concatenation")
    return Coded(replicas, [[parity]], code, timeout=5.0, **more)


async def asked(front: Coded | Hedged, *queries: Any) -> list[object]:
    return await asyncio.gather(*map(front, queries), return_exceptions=True)


BAD: list[Endpoint] = [lost, silent, stubborn, refused_at_once]


@pytest.mark.parametrize("kind", ["affine", "model"])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("parity", BAD)
@pytest.mark.parametrize("replica", BAD)
def test_what_never_comes_ends_in_time(
    replica: Endpoint, parity: Endpoint, count: int, kind: str
) -> None:
    found, seconds = run(asked(coded([replica], parity, kind=kind), *[ROWS] * count))
    assert all(isinstance(each, ConnectionError | ClusterError) for each in found)
    assert seconds <= 5.0 + 205.0 * (stubborn in {replica, parity})
    if {replica, parity} <= {lost, refused_at_once}:
        assert seconds < 0.1
    if replica is silent:
        assert all("in time" in str(each) for each in found)


@pytest.mark.parametrize("kind", ["affine", "model"])
def test_a_query_that_is_late_is_told_after_its_time(kind: str) -> None:
    front = coded([stubborn], stubborn, kind=kind)

    async def one() -> float:
        with pytest.raises(ClusterError, match="in time"):
            await front(ROWS)
        return asyncio.get_running_loop().time()

    assert run(one())[0] <= 5.01


def test_a_lone_query_that_is_lost_does_not_wait_for_its_group() -> None:
    """A group of a parity model stays open for a moment after the loss, and is not joined then."""
    front = coded([lost, good], good, kind="model", patience=0.5)

    async def lone() -> list[object]:
        found = await asked(front, ROWS)
        assert 0.5 <= asyncio.get_running_loop().time() < 0.6
        return found + await asked(front, ROWS)

    (first, second), seconds = run(lone())
    assert isinstance(first, ConnectionError)
    assert isinstance(second, Answer)
    assert seconds < 0.7


def test_a_group_of_a_parity_model_that_fills_in_time_is_decoded() -> None:
    async def sums(rows: Rows) -> Rows:
        return await good(rows[:, :2]) + await good(rows[:, 2:])

    front = coded([lost, good], sums, kind="model", patience=0.5)

    async def two() -> list[Any]:
        first = asyncio.ensure_future(front(ROWS))
        await asyncio.sleep(0.3)
        return [await front(ROWS + 1), await first]

    (second, first), _ = run(two())
    assert first.reconstructed
    np.testing.assert_allclose([first.values, second.values], [[[7.0]], [[10.0]]])


REFUSED: dict[str, Any] = {
    "wide": np.ones((1, 3)),
    "narrow": np.ones((1, 1)),
    "flat": np.ones(2),
    "texts": np.array([["a", "b"]]),
    "ragged": [[1.0, 2.0], [3.0]],
    "none": None,
    "scalar": 5.0,
    "no rows": np.ones((0, 2)),
    "complex": np.ones((1, 2)) * 1j,
    "objects": np.array([[object(), 1.0]]),
    "nan": np.array([[1.0, np.nan]]),
    "infinite": np.array([[np.inf, 1.0]]),
}


@pytest.mark.parametrize("kind", ["affine", "model"])
@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("bad", REFUSED)
def test_a_query_that_cannot_be_answered_fails_alone(bad: str, at: int, kind: str) -> None:
    async def sums(rows: Rows) -> Rows:
        return await good(rows[:, :2]) + await good(rows[:, 2:])

    front = coded([good], good if kind == "affine" else sums, kind=kind)
    queries = [ROWS, ROWS + 1]
    queries.insert(at, REFUSED[bad])
    found, seconds = run(asked(front, *queries))
    wrong = found.pop(at)
    assert isinstance(wrong, InputError | ClusterError)
    assert str(wrong)
    assert [each.values.tolist() for each in found if isinstance(each, Answer)] == [[[7]], [[10]]]
    assert seconds < 0.1


def test_what_a_model_refuses_is_not_made_up() -> None:
    """The other one of a group is answered, and so is the parity query: it is no loss."""

    async def limited(rows: Rows) -> Rows:
        if np.abs(rows).max() > 100:
            raise RefusedRows("a replica refused this", found="400")
        return await good(rows)

    front = coded([limited], good, kind="affine")
    found, _ = run(asked(front, ROWS, ROWS * 1000))
    assert isinstance(found[0], Answer)
    assert isinstance(found[1], RefusedRows)


@pytest.mark.parametrize("kind", ["affine", "model"])
@pytest.mark.parametrize("replica", [silent, lost])
def test_closing_ends_what_waits(replica: Endpoint, kind: str) -> None:
    front = coded([replica, good], silent, kind=kind, patience=1.0)

    async def closed() -> list[object]:
        waiting = [asyncio.ensure_future(front(ROWS)) for _ in range(3)]
        await asyncio.sleep(0.1)
        with front:
            pass
        found: list[object] = await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(ClusterError, match="closed"):
            await front(ROWS)
        return found

    found, seconds = run(closed())
    assert seconds < 0.2
    assert isinstance(found[1], Answer)
    for each in (found[0], found[2]):
        assert isinstance(each, ClusterError)
        assert "closed" in str(each)
    front.close()


def test_a_replica_whose_client_is_closed_is_lost() -> None:
    async def given_up(_rows: Rows) -> Rows:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future
        raise AssertionError

    front = coded([given_up, good], good, kind="affine")
    (first, second), _ = run(asked(front, ROWS, ROWS))
    assert isinstance(first, Answer)
    assert first.reconstructed
    assert isinstance(second, Answer)
    (alone,), _ = run(asked(Hedged([given_up]), ROWS))
    assert isinstance(alone, ClusterError)


@pytest.mark.parametrize("after", [None, 0.0, 1.0])
@pytest.mark.parametrize("replica", BAD[:2])
def test_hedged_queries_end_in_time(replica: Endpoint, after: float | None) -> None:
    found, seconds = run(asked(Hedged([replica], after=after, timeout=5.0), ROWS, ROWS))
    assert all(isinstance(each, ConnectionError | ClusterError) for each in found)
    assert seconds <= 6.0


def test_hedged_queries_that_are_given_up_ask_no_more() -> None:
    left: list[Rows] = []

    async def counted(rows: Rows) -> Rows:
        try:
            return await silent(rows)
        finally:
            left.append(rows)

    async def given_up() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Hedged([counted], after=0.1)(ROWS), 1.0)
        await asyncio.sleep(0)
        return len(left)

    assert run(given_up())[0] == 2


@pytest.mark.parametrize("kind", ["affine", "model"])
def test_a_front_end_outlives_its_event_loop(kind: str) -> None:
    """A query that was left behind is in no group with those of another loop."""
    front = coded([lost, good], good, kind=kind, patience=1.0)

    async def left_behind() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(front(ROWS), 0.5)

    run(left_behind())
    (first, second), seconds = run(asked(front, ROWS, ROWS + 1))
    assert isinstance(first, Answer)  # replicas are asked in turn, and this is the second one's
    assert seconds < 2
    assert isinstance(second, Answer if kind == "affine" else ConnectionError | Answer)
    front.close()


def test_threads_with_loops_of_their_own_share_a_front_end() -> None:
    front = coded([good, lost], good, kind="affine")

    async def many(seed: int) -> int:
        queries = np.random.default_rng(seed).normal(size=(20, 1, 2))
        for _ in range(5):
            for query, found in zip(queries, await asked(front, *queries), strict=True):
                if isinstance(found, Answer):
                    np.testing.assert_allclose(found.values, await good(query), rtol=1e-9)
                else:  # both queries of a group may have gone to the replica that is lost
                    assert isinstance(found, ConnectionError)
        return seed

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda seed: asyncio.run(many(seed)), range(12)))
    assert found == list(range(12))
    assert front.counts["reconstructed"] > 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: Coded([good], [[good]], ParityCode(2), timeout=0.0),
        lambda: Coded([good], [[good]], ParityCode(2), timeout=float("inf")),
        lambda: Hedged([good], timeout=float("nan")),
    ],
)
def test_a_time_is_some_seconds(call: Callable[[], object]) -> None:
    with pytest.raises(ClusterError, match="some seconds"):
        call()


def test_answers_that_cannot_be_added_up_are_answers() -> None:
    async def words(rows: Rows) -> Rows:
        await asyncio.sleep(0.001)
        return np.array(["7"] * len(rows))

    front = coded([words, lost], words, kind="model")
    found, seconds = run(asked(front, ROWS, ROWS))
    assert isinstance(found[0], Answer)
    assert isinstance(found[1], ConnectionError)
    assert seconds < 0.1


def test_a_sum_that_is_too_large_gives_nothing() -> None:
    for kind in ("affine", "model"):
        front = coded([good, lost], good if kind == "affine" else silent, kind=kind)
        found, seconds = run(asked(front, ROWS * 4e307, ROWS * 4e307))
        assert isinstance(found[0], Answer)
        assert isinstance(found[1], ConnectionError | ClusterError)
        assert seconds <= 5.0
