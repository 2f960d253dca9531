"""Parity while the deployed model changes: what is decoded is all of one version."""

from __future__ import annotations

import asyncio
import copy
import itertools
import logging
import pickle
from dataclasses import dataclass, field

import numpy as np
import pytest

from runtime.cluster.parity import Answer, Coded, Endpoint, Hedged, ParityCode
from runtime.cluster.parity.code import Rows
from tests.runtime.cluster.virtual_time import run

#: Affine programs by version; the third has the offset of the first, the fourth its weights.
PROGRAMS = {
    "one": (np.array([[2.0, -1.0], [1.0, 3.0]]), np.array([3.0, -2.0])),
    "two": (np.array([[10.0, 4.0], [-7.0, 0.5]]), np.array([40.0, 8.0])),
    "three": (np.array([[5.0, 5.0], [5.0, -5.0]]), np.array([3.0, -2.0])),
    "four": (np.array([[2.0, -1.0], [1.0, 3.0]]), np.array([11.0, 12.0])),
}
QUERIES = np.arange(24.0).reshape(6, 2, 2) ** 1.5


def told(version: str, rows: Rows) -> Rows:
    weights, offset = PROGRAMS[version]
    return np.asarray(rows @ weights + offset)


@dataclass
class Replica:
    """Answers by the version that it has when it is asked; is lost, or takes so long."""

    version: str = "one"
    seconds: float = 0.001
    lost: bool = False
    tells: bool = True
    asked: list[str] = field(default_factory=list)

    async def __call__(self, rows: Rows) -> Rows | Answer:
        version, lost = self.version, self.lost
        self.asked.append(version)
        await asyncio.sleep(self.seconds)
        if lost:
            raise ConnectionError("the replica has gone")
        values = told(version, rows)
        return Answer(values, version=version) if self.tells else values


async def several(front: Coded, queries: Rows) -> list[object]:
    return list(await asyncio.gather(*map(front, queries), return_exceptions=True))


def right(answer: object, rows: Rows) -> bool:
    """Whether an answer is what its own version says."""
    assert isinstance(answer, Answer)
    assert answer.version
    np.testing.assert_allclose(answer.values, told(answer.version, rows), rtol=1e-12, atol=1e-9)
    return answer.reconstructed


async def _groups_about_a_switch(when: str, lost: str, versions: tuple[str, str]) -> list[object]:
    """Three groups of two, of which the second one is asked while versions are switched."""
    first, second, parity = Replica(), Replica(), Replica(seconds=0.002)
    second.lost, parity.lost = lost == "deployed", lost == "parity"
    front = Coded([first, second], [[parity]], ParityCode(2), constant=PROGRAMS["one"][1])

    async def moment(name: str, number: int) -> None:
        await asyncio.sleep(0.0001)  # what was asked is on its way
        if name == when and number == 2:
            first.version = second.version = versions[0]
            parity.version = versions[1]

    found: list[object] = []
    for number in range(0, len(QUERIES), 2):
        await moment("before", number)
        one = asyncio.ensure_future(front(QUERIES[number]))
        await moment("within", number)
        two = asyncio.ensure_future(front(QUERIES[number + 1]))
        await moment("under way", number)
        found += await asyncio.gather(one, two, return_exceptions=True)
        await moment("after", number)
    return found


@pytest.mark.parametrize("new", ["two", "three", "four"])
@pytest.mark.parametrize("parity", ["switches, too", "stays"])
@pytest.mark.parametrize("lost", ["none", "deployed", "parity"])
@pytest.mark.parametrize("when", ["before", "within", "under way", "after", "never"])
def test_a_switch_never_gives_a_number_of_no_version(
    when: str, lost: str, parity: str, new: str
) -> None:
    stays = parity == "stays"
    answers, seconds = run(_groups_about_a_switch(when, lost, (new, "one" if stays else new)))
    assert seconds < 1
    failed = [number for number, each in enumerate(answers) if not isinstance(each, Answer)]
    assert all(isinstance(answers[number], ConnectionError) for number in failed)
    for number in set(range(len(answers))) - set(failed):
        was_lost = lost == "deployed" and number % 2 == 1
        assert right(answers[number], QUERIES[number]) == was_lost
    # Within the second group, the first query was answered by another version than parity was.
    wanted = {"never": [], "before": [3, 5]}.get(when, [5]) if stays else [3] * (when == "within")
    assert failed == (wanted if lost == "deployed" else [])


@pytest.mark.parametrize(
    "versions", list(itertools.product(("one", "two"), repeat=4)), ids="-".join
)
@pytest.mark.parametrize("lost", list(itertools.product((False, True), repeat=3)), ids=str)
def test_mixed_replicas_of_two_parities(versions: tuple[str, ...], lost: tuple[bool, ...]) -> None:
    """Three queries, of which up to two are lost, whatever version each replica has."""
    replicas = [
        Replica(version=versions[number % 2], lost=each) for number, each in enumerate(lost)
    ]
    parities = [Replica(version=each, seconds=0.002) for each in versions[2:]]
    front = Coded(replicas, [[each] for each in parities], ParityCode(3, 2), constant=0.0)

    async def group() -> list[object]:
        found = await several(front, QUERIES[:3])
        await asyncio.sleep(0.01)  # where nothing is lost, parity answers come after the others
        return found

    answers, _ = run(group())
    there = {versions[number % 2] for number, each in enumerate(lost) if not each}
    known = next(iter(there)) if len(there) == 1 else None
    fit = [each for each in versions[2:] if each == known]
    decodes = sum(lost) <= len(fit)
    for number, answer in enumerate(answers):
        if lost[number] and not decodes:
            assert isinstance(answer, ConnectionError)
        else:
            assert right(answer, QUERIES[number]) == lost[number]
    assert front.counts["reconstructed"] == (sum(lost) if decodes else 0)
    assert front.counts["mixed"] == (len({*there, *versions[2:]}) > 1)


def test_groups_that_are_filled_up_have_the_constant_of_their_version() -> None:
    silent, parity = Replica(seconds=1e6), Replica()
    front = Coded([silent], [[parity]], ParityCode(3), constant=PROGRAMS["one"][1])

    async def alone() -> list[Answer]:
        found = [await front(QUERIES[0])]
        silent.version = parity.version = "two"
        return [*found, await front(QUERIES[1])]

    answers, seconds = run(alone())
    assert [right(answer, QUERIES[n]) for n, answer in enumerate(answers)] == [True, True]
    assert [each.version for each in answers] == ["one", "two"]
    assert seconds < 0.1


@pytest.mark.parametrize("constant", [PROGRAMS["one"][1], 0.0])
def test_replicas_that_tell_no_version_are_known_by_their_constant(constant: Rows | float) -> None:
    one, lost = Replica(tells=False), Replica(tells=False, lost=True)
    parity = Replica(tells=False, seconds=0.002)
    front = Coded([one, lost], [[parity]], ParityCode(2), constant=constant)

    async def asked() -> list[object]:
        found = await several(front, QUERIES[:2])
        one.version = parity.version = "two"
        return found + await several(front, QUERIES[2:4])

    (first, second, third, fourth), _ = run(asked())
    assert isinstance(first, Answer)
    assert isinstance(third, Answer)
    np.testing.assert_array_equal(third.values, told("two", QUERIES[2]))
    assert isinstance(fourth, ConnectionError)  # it is not what the constant is of
    if np.ndim(constant):
        assert isinstance(second, Answer)
        assert second.reconstructed
        np.testing.assert_allclose(second.values, told("one", QUERIES[1]))
    else:
        assert isinstance(second, ConnectionError)


def _sums(version: str, trained_for: str) -> Endpoint:
    """A parity model that is as good as can be, for the deployed model that it tells."""

    async def answer(rows: Rows) -> Answer:
        await asyncio.sleep(0.002)
        return Answer(told(version, rows[:, :2]) + told(version, rows[:, 2:]), version=trained_for)

    return answer


def test_coding_pauses_until_there_is_a_parity_model_of_the_new_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one, lost, models = Replica(), Replica(lost=True), [_sums("one", "one")]

    async def parity(rows: Rows) -> Rows | Answer:
        return await models[-1](rows)

    front = Coded([one, lost], [[parity]], ParityCode(2, encoder="concatenation"))

    async def asked() -> list[list[object]]:
        found = [await several(front, QUERIES[:2])]
        one.version = lost.version = "two"
        found += [await several(front, QUERIES[:2]), await several(front, QUERIES[:2])]
        models.append(_sums("two", "two"))
        return [*found, await several(front, QUERIES[:2])]

    with caplog.at_level(logging.WARNING, "pretzel.parity"):
        found, _ = run(asked())
    for before, version in ((found[0], "one"), (found[3], "two")):
        assert [right(each, QUERIES[n]) for n, each in enumerate(before)] == [False, True]
        assert isinstance(before[1], Answer)
        assert before[1].version == version
    for paused in found[1:3]:
        assert not right(paused[0], QUERIES[0])
        assert isinstance(paused[1], ConnectionError)
    assert front.counts == {"coded": 4, "reconstructed": 2, "mixed": 2}
    assert [record.getMessage() for record in caplog.records] == [
        "parity is paused: answers and parity are of several versions: one, two"
    ]


def test_a_version_that_is_not_known_is_never_decoded() -> None:
    async def unknown(rows: Rows) -> Answer:
        return Answer(told("one", rows), version=None)

    front = Coded([unknown, Replica(lost=True)], [[unknown]], ParityCode(2), constant=0.0)
    (first, second), _ = run(several(front, QUERIES[:2]))
    assert isinstance(first, Answer)
    assert isinstance(second, ConnectionError)


def test_callers_may_write_to_rows_and_answers() -> None:
    """The first caller is answered, and goes on with its arrays, while its group is still open."""
    one, lost, parity = Replica(), Replica(lost=True), Replica()
    front = Coded([one, lost], [[parity]], ParityCode(2), constant=0.0, patience=1.0)

    async def asked() -> tuple[Answer, Answer]:
        rows = QUERIES[0].copy()
        first = await front(rows)
        rows[:], first.values[:] = 1e6, -1e6
        second = await front(QUERIES[1])
        return first, second

    (_, second), _ = run(asked())
    assert right(second, QUERIES[1])


def test_a_hedged_answer_tells_its_version() -> None:
    front = Hedged([Replica(seconds=1.0), Replica("two")], after=0.1)

    async def asked() -> Answer:
        return await front(QUERIES[0])

    answer, _ = run(asked())
    assert not right(answer, QUERIES[0])
    assert answer.version == "two"


def test_answers_of_another_width_are_not_spread_over_others() -> None:
    async def narrow(rows: Rows) -> Answer:
        return Answer(rows[:, :1], version="one")

    front = Coded([narrow, Replica(lost=True)], [[Replica()]], ParityCode(2), constant=0.0)
    (first, second), _ = run(several(front, QUERIES[:2]))
    assert isinstance(first, Answer)
    assert isinstance(second, ConnectionError)


def test_an_answer_can_be_copied_and_is_a_pair() -> None:
    made = Answer(QUERIES[0], True, "one")
    values, marked = copy.copy(made)
    assert values is QUERIES[0] or np.array_equal(values, QUERIES[0])
    assert marked
    assert copy.copy(made).version == made.version == "one"
    assert pickle.loads(pickle.dumps(made)).version == "one"
    assert made._replace(reconstructed=False).version == ""


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_each_answer_is_that_of_its_version(seed: int) -> None:
    """Replicas are switched by turns, are late and lost, and queries have one to three rows."""
    random = np.random.default_rng(seed)
    group, parities = [(2, 1), (3, 1), (3, 2), (4, 2)][seed % 4]
    replicas = [Replica() for _ in range(group + 1)]
    spares = [Replica() for _ in range(parities)]
    front = Coded(
        replicas,
        [[each] for each in spares],
        ParityCode(group, parities),
        constant=PROGRAMS["one"][1],
        timeout=2.0,
    )

    async def upgraded() -> None:
        for version in ("two", "three", "four", "one"):
            for each in random.permutation(np.array([*replicas, *spares], object)):
                await asyncio.sleep(float(random.uniform(0.0, 0.08)))
                each.version = version
                each.lost = bool(random.random() < 0.3)
                each.seconds = float(random.choice([0.001, 0.02, 1e6], p=[0.6, 0.3, 0.1]))

    async def one(number: int) -> tuple[Rows, object]:
        await asyncio.sleep(number * 0.004)
        rows = random.normal(size=(int(random.integers(1, 4)), 2))
        began = asyncio.get_running_loop().time()
        (found,) = await asyncio.gather(front(rows), return_exceptions=True)
        assert asyncio.get_running_loop().time() - began <= 2.001
        return rows, found

    async def everything() -> list[tuple[Rows, object]]:
        changing = asyncio.ensure_future(upgraded())
        found = await asyncio.gather(*map(one, range(300)))
        await changing
        return found

    found, _ = run(everything())
    answers = [(rows, each) for rows, each in found if isinstance(each, Answer)]
    marked = [right(answer, rows) for rows, answer in answers]
    assert len(answers) > 50
    assert sum(marked) == front.counts["reconstructed"] > 0
    assert front.counts["mixed"] > 0
